"""Label Deconvolution: node representation learning on attributed graphs."""
