"""What can be set: the models, and how they are read from files, options and dotted names."""
