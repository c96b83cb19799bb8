"""The function itself: a greeting."""


def main(arguments):
    """Greet ``name``."""
    return {"greeting": f"Hello, {arguments.get('name', 'stranger')}!"}
