"""One topic with every released change in commit order, exactly once."""
