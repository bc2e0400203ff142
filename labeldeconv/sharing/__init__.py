"""A trained run taken elsewhere: as ONNX files, or as a repository in Hugging Face's layout."""
