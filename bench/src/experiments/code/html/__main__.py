"""functions/html as an action that is an archive: it is page.py there, with Flask beside it and without a server."""

import page
from flask import Flask

app = Flask(page.__name__)


def main(arguments):
    """Render the page."""
    with app.app_context():
        return page.main(arguments)
