"""How things are shown: rows, pages, words and colours, errors, and a page that is redrawn."""
