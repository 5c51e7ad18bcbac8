"""Views of an output for a notebook: its releases as a frame and as a picture."""
