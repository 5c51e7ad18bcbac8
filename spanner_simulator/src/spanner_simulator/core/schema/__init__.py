"""Tables, indexes, views, change streams and roles, and the DDL that makes them."""
