package main

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
)

var postgresChecks = []check{
	{"pg_database_created", pgDatabaseCreated},
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
