"""The look of all pages. A leaf at the bottom: files of style and script, and one function that reads them."""
