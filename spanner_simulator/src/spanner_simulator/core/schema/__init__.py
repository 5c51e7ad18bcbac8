"""Tables, indexes, views, change streams and roles: what they are, and the DDL that makes them."""
