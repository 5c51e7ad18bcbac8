package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"cloud.google.com/go/civil"
	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
)

var postgresChecks = []check{
	{"pg_database_created", pgDatabaseCreated},
	{"pg_types", pgTypes},
	{"pg_types_array", pgTypesArray},
	{"pg_query", pgQuery},
	{"pg_dml", pgDML},
	{"pg_information_schema", pgInformationSchema},
	{"pg_stream", pgStream},
	{"database_dropped", databaseDropped},
}

func pgDatabaseCreated(d *databases) {
	operation := value(d.admin.CreateDatabase(d.ctx, &databasepb.CreateDatabaseRequest{
		Parent:          instanceName,
		CreateStatement: `CREATE DATABASE "go-postgres"`,
		DatabaseDialect: databasepb.DatabaseDialect_POSTGRESQL,
	}))
	value(operation.Wait(d.ctx))
	changeDDL(d, postgresName, statements("postgres.sql")...)
	request := &databasepb.GetDatabaseDdlRequest{Database: postgresName}
	ddl := strings.ToLower(strings.Join(value(d.admin.GetDatabaseDdl(d.ctx, request)).Statements, "\n"))
	for _, part := range []string{"create change stream changes", "timestamp with time zone", "include (born)"} {
		if !strings.Contains(ddl, part) {
			panic(part + " is missing")
		}
	}
	d.postgres = value(spanner.NewClient(d.ctx, postgresName))
	found := value(d.admin.GetDatabase(d.ctx, &databasepb.GetDatabaseRequest{Name: postgresName}))
	equal(databasepb.DatabaseDialect_POSTGRESQL, found.DatabaseDialect)
}

func pgApply(d *databases, all ...*spanner.Mutation) time.Time {
	return value(d.postgres.Apply(d.ctx, all))
}

func pgQueryRows(d *databases, sql string, params map[string]any) string {
	return rows(d.postgres.Single().Query(d.ctx, spanner.Statement{SQL: sql, Params: params}))
}

func pgTypes(d *databases) {
	columns := []string{"id", "bool", "int", "float4", "float8", "num", "str", "byt", "dat", "tim", "jso"}
	document := map[string]any{"a": []any{1, nil, "x"}, "b": map[string]any{}}
	pgApply(d,
		spanner.Insert("scalars", columns, []any{
			1, true, int64(-42), float32(0.5), 0.1, spanner.PGNumeric{Numeric: "-12.3450", Valid: true}, "grüße 🌍",
			[]byte("hello\x00\x01"), civil.Date{Year: 2024, Month: 2, Day: 29},
			time.Date(2024, 2, 29, 12, 34, 56, 123456000, time.UTC), spanner.PGJsonB{Value: document, Valid: true},
		}),
		spanner.Insert("scalars", columns[:1], []any{2}),
		spanner.Insert("scalars", []string{"id", "num", "float8"},
			[]any{3, spanner.PGNumeric{Numeric: "NaN", Valid: true}, math.Inf(1)}))
	found := rows(d.postgres.Single().Read(d.ctx, "scalars", spanner.KeySets(spanner.Key{1}, spanner.Key{2}), columns))
	equal([][]any{
		{
			"1", true, "-42", 0.5, 0.1, "-12.3450", "grüße 🌍", "aGVsbG8AAQ==", "2024-02-29",
			"2024-02-29T12:34:56.123456Z", `{"a": [1, null, "x"], "b": {}}`,
		},
		{"2", nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
	}, found)
	equal(`[["NaN","Infinity"]]`, pgQueryRows(d, "SELECT num, float8 FROM scalars WHERE id = 3", nil))
}

func pgTypesArray(d *databases) {
	columns := []string{"id", "int", "num", "str", "jso"}
	pgApply(d,
		spanner.Insert("arrays", columns, []any{
			1, []spanner.NullInt64{{Int64: 1, Valid: true}, {}}, []spanner.PGNumeric{{Numeric: "1.50", Valid: true}, {}},
			[]spanner.NullString{{StringVal: "a", Valid: true}, {}},
			[]spanner.PGJsonB{{Value: map[string]any{"a": 1}, Valid: true}, {}},
		}),
		spanner.Insert("arrays", columns, []any{2, []int64{}, []spanner.PGNumeric{}, []string{}, []spanner.PGJsonB{}}),
		spanner.Insert("arrays", columns[:1], []any{3}))
	equal([][]any{
		{"1", []any{"1", nil}, []any{"1.50", nil}, []any{"a", nil}, []any{`{"a": 1}`, nil}},
		{"2", []any{}, []any{}, []any{}, []any{}},
		{"3", nil, nil, nil, nil},
	}, rows(d.postgres.Single().Read(d.ctx, "arrays", spanner.AllKeys(), columns)))
}

func pgQuery(d *databases) {
	singer, album := []string{"singerid", "name"}, []string{"singerid", "albumid", "price"}
	pgApply(d,
		spanner.Insert("singers", singer, []any{1, "first"}), spanner.Insert("singers", singer, []any{2, "second"}),
		spanner.Insert("singers", singer, []any{3, "third"}),
		spanner.Insert("albums", album, []any{1, 1, 10}), spanner.Insert("albums", album, []any{1, 2, 20}))
	equal(`[["first","2","30"],["second","0",null]]`, pgQueryRows(d,
		"SELECT s.name, count(a.albumid) AS n, sum(a.price) FROM singers s "+
			"LEFT JOIN albums a ON a.singerid = s.singerid WHERE s.name >= $1 AND s.singerid = ANY($2) "+
			"GROUP BY s.name ORDER BY s.name LIMIT $3",
		map[string]any{"p1": "a", "p2": []int64{1, 2}, "p3": 5}))
	found := d.postgres.Single().ReadUsingIndex(d.ctx, "singers", "singersbyname", spanner.Key{"third"}, []string{"name", "singerid"})
	equal(`[["third","3"]]`, rows(found))
}

func pgDML(d *databases) {
	var count int64
	var returned string
	value(d.postgres.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) (err error) {
		count, err = t.Update(ctx, spanner.Statement{
			SQL:    "INSERT INTO singers (singerid, name) VALUES ($1, $2), (101, 'b')",
			Params: map[string]any{"p1": 100, "p2": "a"},
		})
		if err != nil {
			return err
		}
		statement := spanner.NewStatement("UPDATE singers SET name = name || '!' WHERE singerid = 100 RETURNING name")
		returned, err = tryRows(t.Query(ctx, statement))
		return err
	}))
	equal(2, count)
	equal(`[["a!"]]`, returned)
	statement := spanner.NewStatement("DELETE FROM singers WHERE singerid >= 100")
	equal(2, value(d.postgres.PartitionedUpdate(d.ctx, statement)))
}

func pgInformationSchema(d *databases) {
	equal(`[["id","bigint","NO"],["balance","bigint","YES"],["owner","character varying","YES"]]`, pgQueryRows(d,
		"SELECT column_name, spanner_type, is_nullable FROM information_schema.columns "+
			"WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position",
		map[string]any{"p1": "accounts"}))
}

// pgChanges reads the JSON of spanner.read_json into the same records.
func pgChanges(d *databases) reader {
	return func(token string, start time.Time, end *time.Time, each func(*changeRecord) error) error {
		found := d.postgres.Single().Query(d.ctx, spanner.Statement{
			SQL: "SELECT * FROM spanner.read_json_changes($1, $2, $3, $4, null)",
			Params: map[string]any{
				"p1": start, "p2": end, "p3": spanner.NullString{StringVal: token, Valid: token != ""}, "p4": int64(1000),
			},
		})
		defer found.Stop()
		for {
			row, err := found.Next()
			if errors.Is(err, iterator.Done) {
				return nil
			}
			if err != nil {
				return err
			}
			var document spanner.PGJsonB
			if err := row.Columns(&document); err != nil {
				return err
			}
			// The JSON has one object where a row of GoogleSQL has an array of one.
			var kinds struct {
				Data      *dataChangeRecord      `json:"data_change_record"`
				Heartbeat *heartbeatRecord       `json:"heartbeat_record"`
				Children  *childPartitionsRecord `json:"child_partitions_record"`
			}
			if err := json.Unmarshal([]byte(asJSON(document.Value)), &kinds); err != nil {
				return err
			}
			var change changeRecord
			switch {
			case kinds.Data != nil:
				change.Data = []*dataChangeRecord{kinds.Data}
			case kinds.Heartbeat != nil:
				change.Heartbeats = []*heartbeatRecord{kinds.Heartbeat}
			case kinds.Children != nil:
				change.Children = []*childPartitionsRecord{kinds.Children}
			}
			if err := each(&change); err != nil {
				return err
			}
		}
	}
}

func pgStream(d *databases) {
	start := pgApply(d, spanner.Insert("accounts", []string{"id", "balance", "owner"}, []any{1, 7, "a"}))
	last := pgApply(d, spanner.Delete("accounts", spanner.Key{1}))
	found, _, _ := follow(pgChanges(d), start, last)
	mods := [][]any{}
	for _, record := range found {
		for _, one := range record.Mods {
			mods = append(mods, []any{record.ModType, one.Keys.Value, one.NewValues.Value, one.OldValues.Value})
		}
	}
	equal(`[["INSERT",{"id":"1"},{"balance":"7","owner":"a"},{}],["DELETE",{"id":"1"},{},{"balance":"7","owner":"a"}]]`, mods)
	equal(1, found[0].RecordsInTransaction)
	equal(start.UTC(), found[0].CommitTimestamp.UTC())
}

func databaseDropped(d *databases) {
	for _, client := range []*spanner.Client{d.google, d.postgres} {
		client.Close()
	}
	for _, name := range []string{googleName, postgresName} {
		must(d.admin.DropDatabase(d.ctx, &databasepb.DropDatabaseRequest{Database: name}))
		_, err := d.admin.GetDatabase(d.ctx, &databasepb.GetDatabaseRequest{Name: name})
		failsWith(codes.NotFound, err)
	}
	must(d.instances.DeleteInstance(d.ctx, &instancepb.DeleteInstanceRequest{Name: instanceName}))
	_, err := d.instances.GetInstance(d.ctx, &instancepb.GetInstanceRequest{Name: instanceName})
	failsWith(codes.NotFound, err)
}
