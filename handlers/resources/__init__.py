"""Resources: URIs and templates, what functions return for them, files of directories."""
