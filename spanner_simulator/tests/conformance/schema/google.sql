CREATE TABLE Scalars (
  Id INT64 NOT NULL,
  Bool BOOL,
  Int INT64,
  Float4 FLOAT32,
  Float8 FLOAT64,
  Num NUMERIC,
  Str STRING(MAX),
  Byt BYTES(MAX),
  Dat DATE,
  Tim TIMESTAMP,
  Jso JSON
) PRIMARY KEY (Id);

CREATE TABLE Arrays (
  Id INT64 NOT NULL,
  Bool ARRAY<BOOL>,
  Int ARRAY<INT64>,
  Float4 ARRAY<FLOAT32>,
  Float8 ARRAY<FLOAT64>,
  Num ARRAY<NUMERIC>,
  Str ARRAY<STRING(MAX)>,
  Byt ARRAY<BYTES(MAX)>,
  Dat ARRAY<DATE>,
  Tim ARRAY<TIMESTAMP>,
  Jso ARRAY<JSON>
) PRIMARY KEY (Id);

CREATE TABLE Singers (
  SingerId INT64 NOT NULL,
  Name STRING(MAX),
  Born DATE
) PRIMARY KEY (SingerId);

CREATE TABLE Albums (
  SingerId INT64 NOT NULL,
  AlbumId INT64 NOT NULL,
  Title STRING(MAX),
  Price INT64
) PRIMARY KEY (SingerId, AlbumId),
  INTERLEAVE IN PARENT Singers ON DELETE CASCADE;

CREATE INDEX SingersByName ON Singers (Name) STORING (Born);

CREATE TABLE Counters (
  Name STRING(64) NOT NULL,
  Value INT64 NOT NULL
) PRIMARY KEY (Name);

CREATE TABLE Events (
  Id STRING(64) NOT NULL,
  Written TIMESTAMP OPTIONS (allow_commit_timestamp = true),
  Kind STRING(16) NOT NULL DEFAULT ('plain'),
  Length INT64 AS (CHAR_LENGTH(Id)) STORED,
  CONSTRAINT KindIsKnown CHECK (Kind IN ('plain', 'fancy'))
) PRIMARY KEY (Id);

CREATE TABLE Blobs (
  Id INT64 NOT NULL,
  Data BYTES(MAX)
) PRIMARY KEY (Id);

CREATE TABLE Accounts (
  Id INT64 NOT NULL,
  Balance INT64,
  Owner STRING(MAX)
) PRIMARY KEY (Id);

CREATE CHANGE STREAM Changes FOR Accounts OPTIONS (
  retention_period = '36h',
  value_capture_type = 'OLD_AND_NEW_VALUES'
);
