"""One self-contained HTML file that lets a person see a plan; nothing is loaded from a network.

Python prepares the data (`assemble.py` and what it calls); `static/` holds the page, its style and its scripts, which
draw it. BokehJS draws the charts over time; tiles, bars and tables are plain HTML and SVG.
"""

from girih.report.page.assemble import MissingLibraryError, page, write_page

__all__ = ["MissingLibraryError", "page", "write_page"]
