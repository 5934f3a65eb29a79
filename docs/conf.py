"""The documentation as a site: `make docs-site`. It needs no network."""

project = "Technique Search"
author = "Technique Search"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = project
exclude_patterns = ["log.md"]  # a diary for contributors; it stays readable in the repository

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = True

myst_heading_anchors = 3
