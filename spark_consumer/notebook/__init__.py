"""What a notebook shows of an output: its releases as a frame and as a picture."""
