CREATE TABLE scalars (
  id bigint PRIMARY KEY,
  bool boolean,
  int bigint,
  float4 real,
  float8 double precision,
  num numeric,
  str character varying,
  byt bytea,
  dat date,
  tim timestamp with time zone,
  jso jsonb
);

CREATE TABLE singers (
  singerid bigint PRIMARY KEY,
  name character varying,
  born date
);

CREATE INDEX singersbyname ON singers (name) INCLUDE (born);

CREATE TABLE albums (
  singerid bigint NOT NULL,
  albumid bigint NOT NULL,
  title character varying,
  price bigint,
  PRIMARY KEY (singerid, albumid)
) INTERLEAVE IN PARENT singers ON DELETE CASCADE;

CREATE TABLE accounts (
  id bigint PRIMARY KEY,
  balance bigint,
  owner character varying
);

CREATE CHANGE STREAM changes FOR accounts WITH (retention_period = '36h');
