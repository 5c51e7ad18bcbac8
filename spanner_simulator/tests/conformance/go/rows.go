package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/civil"
	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	spannerapi "cloud.google.com/go/spanner/apiv1"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/uuid"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	projectName  = "projects/conformance"
	instanceName = projectName + "/instances/conformance-go"
	googleName   = instanceName + "/databases/go-google"
	postgresName = instanceName + "/databases/go-postgres"
)

var rowChecks = []check{
	{"instance_created", instanceCreated},
	{"database_created", databaseCreated},
	{"ddl_read_back", ddlReadBack},
	{"ddl_changed", ddlChanged},
	{"unknown_database", unknownDatabase},
	{"bad_sql", badSQL},
	{"session_multiplexed", sessionMultiplexed},
	{"mutations", mutations},
	{"mutation_errors", mutationErrors},
	{"cascade", cascade},
	{"defaults_and_generated", defaultsAndGenerated},
	{"check_constraint", checkConstraint},
	{"commit_timestamp", commitTimestamp},
	{"batch_write", batchWrite},
	{"types_scalar", typesScalar},
	{"types_null", typesNull},
	{"types_extreme", typesExtreme},
	{"types_array", typesArray},
	{"types_parameter", typesParameter},
	{"types_uuid", typesUUID},
	{"read_keys", readKeys},
	{"read_ranges", readRanges},
	{"read_index", readIndex},
	{"large_value", largeValue},
	{"large_result", largeResult},
}

func instanceCreated(d *databases) {
	d.instances = value(instance.NewInstanceAdminClient(d.ctx))
	d.admin = value(database.NewDatabaseAdminClient(d.ctx))
	operation := value(d.instances.CreateInstance(d.ctx, &instancepb.CreateInstanceRequest{
		Parent:     projectName,
		InstanceId: "conformance-go",
		Instance: &instancepb.Instance{
			Config:      projectName + "/instanceConfigs/emulator-config",
			DisplayName: "conformance",
			NodeCount:   1,
		},
	}))
	equal(instanceName, value(operation.Wait(d.ctx)).Name)
	listed := d.instances.ListInstances(d.ctx, &instancepb.ListInstancesRequest{Parent: projectName})
	for {
		if value(listed.Next()).Name == instanceName {
			return
		}
	}
}

func databaseCreated(d *databases) {
	operation := value(d.admin.CreateDatabase(d.ctx, &databasepb.CreateDatabaseRequest{
		Parent:          instanceName,
		CreateStatement: "CREATE DATABASE `go-google`",
		ExtraStatements: statements("google.sql"),
	}))
	value(operation.Wait(d.ctx))
	found := value(d.admin.GetDatabase(d.ctx, &databasepb.GetDatabaseRequest{Name: googleName}))
	equal(databasepb.Database_READY, found.State)
	d.google = value(spanner.NewClient(d.ctx, googleName))
}

func ddlReadBack(d *databases) {
	request := &databasepb.GetDatabaseDdlRequest{Database: googleName}
	found := strings.Join(value(d.admin.GetDatabaseDdl(d.ctx, request)).Statements, "\n")
	for _, part := range []string{
		"CREATE CHANGE STREAM Changes",
		"INTERLEAVE IN PARENT Singers ON DELETE CASCADE",
		"STORING (Born)",
		"allow_commit_timestamp",
	} {
		if !strings.Contains(found, part) {
			panic(part + " is missing")
		}
	}
}

func changeDDL(d *databases, name string, ddl ...string) {
	request := &databasepb.UpdateDatabaseDdlRequest{Database: name, Statements: ddl}
	must(value(d.admin.UpdateDatabaseDdl(d.ctx, request)).Wait(d.ctx))
}

func ddlChanged(d *databases) {
	changeDDL(d, googleName,
		"ALTER TABLE Counters ADD COLUMN Note STRING(100)", "CREATE INDEX ByNote ON Counters(Note)")
	found := d.google.Single().Query(d.ctx, spanner.Statement{
		SQL: "SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS " +
			"WHERE TABLE_NAME = @table ORDER BY ORDINAL_POSITION",
		Params: map[string]any{"table": "Counters"},
	})
	equal(`[["Name","STRING(64)"],["Value","INT64"],["Note","STRING(100)"]]`, rows(found))
}

func unknownDatabase(d *databases) {
	request := &databasepb.GetDatabaseRequest{Name: instanceName + "/databases/nowhere"}
	_, err := d.admin.GetDatabase(d.ctx, request)
	failsWith(codes.NotFound, err)
}

func badSQL(d *databases) {
	for _, sql := range []string{"SELECT FROM WHERE", "SELECT 1 FROM Nope"} {
		_, err := tryRows(d.google.Single().Query(d.ctx, spanner.NewStatement(sql)))
		failsWith(codes.InvalidArgument, err)
	}
}

func sessionMultiplexed(d *databases) {
	api := value(spannerapi.NewClient(d.ctx,
		option.WithEndpoint(os.Getenv("SPANNER_EMULATOR_HOST")), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))))
	defer api.Close()
	session := value(api.CreateSession(d.ctx, &sppb.CreateSessionRequest{
		Database: googleName, Session: &sppb.Session{Multiplexed: true},
	}))
	equal(true, session.Multiplexed)
	insert := &sppb.Mutation{Operation: &sppb.Mutation_Insert{Insert: &sppb.Mutation_Write{
		Table:   "Counters",
		Columns: []string{"Name", "Value"},
		Values:  []*structpb.ListValue{value(structpb.NewList([]any{"multiplexed", "1"}))},
	}}}
	begun := value(api.BeginTransaction(d.ctx, &sppb.BeginTransactionRequest{
		Session: session.Name,
		Options: &sppb.TransactionOptions{
			Mode: &sppb.TransactionOptions_ReadWrite_{ReadWrite: &sppb.TransactionOptions_ReadWrite{}},
		},
		MutationKey: insert,
	}))
	answer := value(api.Commit(d.ctx, &sppb.CommitRequest{
		Session:        session.Name,
		Transaction:    &sppb.CommitRequest_TransactionId{TransactionId: begun.Id},
		Mutations:      []*sppb.Mutation{insert},
		PrecommitToken: begun.PrecommitToken,
	}))
	equal(true, answer.CommitTimestamp != nil)
}

func apply(d *databases, all ...*spanner.Mutation) time.Time {
	return value(d.google.Apply(d.ctx, all))
}

func closed(first, last any) spanner.KeyRange {
	return spanner.KeyRange{Start: spanner.Key{first}, End: spanner.Key{last}, Kind: spanner.ClosedClosed}
}

func mutations(d *databases) {
	columns := []string{"SingerId", "Name", "Born"}
	day := civil.Date{Year: 1970, Month: 1, Day: 1}
	var first []*spanner.Mutation
	for number := 100; number < 106; number++ {
		first = append(first, spanner.Insert("Singers", columns, []any{number, fmt.Sprint("name ", number), day}))
	}
	apply(d, first...)
	apply(d,
		spanner.Update("Singers", columns[:2], []any{100, "updated"}),
		spanner.InsertOrUpdate("Singers", columns[:2], []any{101, "upserted"}),
		spanner.InsertOrUpdate("Singers", columns[:2], []any{110, "new"}),
		spanner.Replace("Singers", columns[:2], []any{102, "replaced"}),
		spanner.Delete("Singers", spanner.Key{103}),
		spanner.Delete("Singers", spanner.KeyRange{Start: spanner.Key{104}, End: spanner.Key{106}}))
	equal(
		`[["100","updated","1970-01-01"],["101","upserted","1970-01-01"],["102","replaced",null],["110","new",null]]`,
		rows(d.google.Single().Read(d.ctx, "Singers", closed(100, 199), columns)))
}

func mutationErrors(d *databases) {
	columns := []string{"Name", "Value"}
	try := func(one *spanner.Mutation) error {
		_, err := d.google.Apply(d.ctx, []*spanner.Mutation{one})
		return err
	}
	must(try(spanner.Insert("Counters", columns, []any{"once", 1})))
	failsWith(codes.AlreadyExists, try(spanner.Insert("Counters", columns, []any{"once", 1})))
	failsWith(codes.NotFound, try(spanner.Update("Counters", columns, []any{"never", 1})))
	failsWith(codes.NotFound, try(spanner.Insert("Nope", columns, []any{"a", 1})))
	failsWith(codes.FailedPrecondition, try(spanner.Insert("Counters", columns, []any{"null value", nil})))
}

func cascade(d *databases) {
	album := []string{"SingerId", "AlbumId", "Title"}
	apply(d,
		spanner.Insert("Singers", album[:1], []any{200}), spanner.Insert("Singers", album[:1], []any{201}),
		spanner.Insert("Albums", album, []any{200, 1, "a"}), spanner.Insert("Albums", album, []any{200, 2, "b"}),
		spanner.Insert("Albums", album, []any{201, 1, "c"}))
	apply(d, spanner.Delete("Singers", spanner.Key{200}))
	equal(`[["201","1","c"]]`, rows(d.google.Single().Read(d.ctx, "Albums", closed(200, 201), album)))
	_, err := d.google.Apply(d.ctx, []*spanner.Mutation{spanner.Insert("Albums", album, []any{299, 1, "a"})})
	failsWith(codes.NotFound, err)
}

func defaultsAndGenerated(d *databases) {
	apply(d,
		spanner.Insert("Events", []string{"Id"}, []any{"default"}),
		spanner.Insert("Events", []string{"Id", "Kind"}, []any{"given", "fancy"}))
	keys := spanner.KeySets(spanner.Key{"default"}, spanner.Key{"given"})
	equal(`[["default","plain","7"],["given","fancy","5"]]`,
		rows(d.google.Single().Read(d.ctx, "Events", keys, []string{"Id", "Kind", "Length"})))
}

func checkConstraint(d *databases) {
	odd := spanner.Insert("Events", []string{"Id", "Kind"}, []any{"refused", "odd"})
	_, err := d.google.Apply(d.ctx, []*spanner.Mutation{odd})
	equal(true, strings.Contains(failsWith(codes.OutOfRange, err), "KindIsKnown"))
}

func commitTimestamp(d *databases) {
	columns := []string{"Id", "Written"}
	committed := apply(d, spanner.Insert("Events", columns, []any{"mutation", spanner.CommitTimestamp}))
	_, later := update(d, "INSERT INTO Events (Id, Written) VALUES ('statement', PENDING_COMMIT_TIMESTAMP())")
	for key, expected := range map[string]time.Time{"mutation": committed, "statement": later} {
		var found time.Time
		must(value(d.google.Single().ReadRow(d.ctx, "Events", spanner.Key{key}, columns[1:])).Columns(&found))
		equal(expected.UTC(), found.UTC())
	}
}

func batchWrite(d *databases) {
	columns := []string{"Name", "Value"}
	insert := func(name string, number int) *spanner.Mutation {
		return spanner.Insert("Counters", columns, []any{name, number})
	}
	var groups []*spanner.MutationGroup
	for number := range 4 {
		one := []*spanner.Mutation{insert(fmt.Sprint("group ", number), number)}
		groups = append(groups, &spanner.MutationGroup{Mutations: one})
	}
	both := []*spanner.Mutation{insert("group 0", 7), insert("group 9", 9)}
	groups = append(groups, &spanner.MutationGroup{Mutations: both})
	answered, failed := 0, 0
	answers := d.google.BatchWrite(d.ctx, groups)
	for {
		answer, err := answers.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		must(err)
		answered += len(answer.Indexes)
		if answer.Status.GetCode() != 0 {
			failed += len(answer.Indexes)
		}
	}
	// Groups are applied in any order: of the two that insert the same row, one fails.
	equal([]int{5, 1}, []int{answered, failed})
}

var scalars = []string{"Bool", "Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim", "Jso"}

var scalarRow = []any{
	true, int64(-42), float32(0.5), 0.1, *big.NewRat(-12345, 1000), "grüße 🌍", []byte("hello\x00\x01"),
	civil.Date{Year: 2024, Month: 2, Day: 29}, time.Date(2024, 2, 29, 12, 34, 56, 123456789, time.UTC),
	spanner.NullJSON{Value: map[string]any{"a": []any{1, nil, "x"}, "b": map[string]any{}}, Valid: true},
}

const scalarWire = `[true,"-42",0.5,0.1,"-12.345","grüße 🌍","aGVsbG8AAQ==","2024-02-29","2024-02-29T12:34:56.123456789Z","{\"a\":[1,null,\"x\"],\"b\":{}}"]`

func withID(id int, values []any) []any { return append([]any{id}, values...) }

func withIDColumn(columns []string) []string { return append([]string{"Id"}, columns...) }

func typesScalar(d *databases) {
	apply(d, spanner.Insert("Scalars", withIDColumn(scalars), withID(1, scalarRow)))
	equal("["+scalarWire+"]", rows(d.google.Single().Read(d.ctx, "Scalars", spanner.Key{1}, scalars)))
	sql := "SELECT " + strings.Join(scalars, ", ") + " FROM Scalars WHERE Id = 1"
	equal("["+scalarWire+"]", rows(d.google.Single().Query(d.ctx, spanner.NewStatement(sql))))
	var found struct {
		Bool   bool
		Int    int64
		Float4 float32
		Float8 float64
		Num    big.Rat
		Str    string
		Byt    []byte
		Dat    civil.Date
		Tim    time.Time
		Jso    spanner.NullJSON
	}
	must(value(d.google.Single().ReadRow(d.ctx, "Scalars", spanner.Key{1}, scalars)).ToStruct(&found))
	equal(scalarRow[8], found.Tim)
	equal("-12.345000000", spanner.NumericString(&found.Num))
	equal(float32(0.5), found.Float4)
}

func typesNull(d *databases) {
	nothing := make([]any, len(scalars))
	for _, table := range []string{"Scalars", "Arrays"} {
		apply(d, spanner.Insert(table, withIDColumn(scalars), withID(2, nothing)))
		found := rows(d.google.Single().Read(d.ctx, table, spanner.Key{2}, scalars))
		equal([][]any{nothing}, found)
	}
}

func typesExtreme(d *databases) {
	columns := []string{"Id", "Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim"}
	digits := strings.Repeat("9", 29) + ".999999999"
	number, _ := new(big.Rat).SetString(digits)
	negative := new(big.Rat).Neg(number)
	apply(d,
		spanner.Insert("Scalars", columns, []any{
			10, int64(math.MinInt64), float32(math.Inf(-1)), math.Inf(-1), *negative, "", []byte{},
			civil.Date{Year: 1, Month: 1, Day: 1}, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		}),
		spanner.Insert("Scalars", columns, []any{
			11, int64(math.MaxInt64), float32(math.Inf(1)), math.MaxFloat64, *number, "\x00\n\"'\\", []byte{255},
			civil.Date{Year: 9999, Month: 12, Day: 31}, time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		}),
		spanner.Insert("Scalars", []string{"Id", "Float4", "Float8"}, []any{12, float32(math.NaN()), math.NaN()}))
	keys := spanner.KeySets(spanner.Key{10}, spanner.Key{11})
	equal([][]any{
		{"10", "-9223372036854775808", "-Infinity", "-Infinity", "-" + digits, "", "", "0001-01-01", "0001-01-01T00:00:00Z"},
		{"11", "9223372036854775807", "Infinity", math.MaxFloat64, digits, "\x00\n\"'\\", "/w==", "9999-12-31", "9999-12-31T23:59:59.999999999Z"},
	}, rows(d.google.Single().Read(d.ctx, "Scalars", keys, columns)))
	equal(`[["NaN","NaN"]]`, rows(d.google.Single().Read(d.ctx, "Scalars", spanner.Key{12}, []string{"Float4", "Float8"})))
}

func typesArray(d *databases) {
	full, empty := arrays()
	columns := withIDColumn(scalars)
	apply(d,
		spanner.Insert("Arrays", columns, withID(20, full)), spanner.Insert("Arrays", columns, withID(21, empty)))
	keys := spanner.KeySets(spanner.Key{20}, spanner.Key{21})
	equal([]any{wireArrays(), []any{[]int{}, []int{}, []int{}, []int{}, []int{}, []int{}, []int{}, []int{}, []int{}, []int{}}},
		rows(d.google.Single().Read(d.ctx, "Arrays", keys, scalars)))
}

// arrays are the values of scalarRow followed by NULL, and empty arrays of their types.
func arrays() (full, empty []any) {
	json := scalarRow[9].(spanner.NullJSON)
	full = []any{
		[]spanner.NullBool{{Bool: true, Valid: true}, {}},
		[]spanner.NullInt64{{Int64: -42, Valid: true}, {}},
		[]spanner.NullFloat32{{Float32: 0.5, Valid: true}, {}},
		[]spanner.NullFloat64{{Float64: 0.1, Valid: true}, {}},
		[]spanner.NullNumeric{{Numeric: *big.NewRat(-12345, 1000), Valid: true}, {}},
		[]spanner.NullString{{StringVal: "grüße 🌍", Valid: true}, {}},
		[][]byte{[]byte("hello\x00\x01"), nil},
		[]spanner.NullDate{{Date: scalarRow[7].(civil.Date), Valid: true}, {}},
		[]spanner.NullTime{{Time: scalarRow[8].(time.Time), Valid: true}, {}},
		[]spanner.NullJSON{json, {}},
	}
	empty = []any{
		[]bool{}, []int64{}, []float32{}, []float64{}, []big.Rat{}, []string{}, [][]byte{}, []civil.Date{},
		[]time.Time{}, []spanner.NullJSON{},
	}
	return full, empty
}

func wireArrays() []any {
	var scalar, all []any
	must(json.Unmarshal([]byte(scalarWire), &scalar))
	for _, one := range scalar {
		all = append(all, []any{one, nil})
	}
	return all
}

func typesParameter(d *databases) {
	full, _ := arrays()
	nothing := []any{
		spanner.NullBool{}, spanner.NullInt64{}, spanner.NullFloat32{}, spanner.NullFloat64{}, spanner.NullNumeric{},
		spanner.NullString{}, []byte(nil), spanner.NullDate{}, spanner.NullTime{}, spanner.NullJSON{},
	}
	for expected, values := range map[string][]any{
		"[" + scalarWire + "]":           scalarRow,
		asJSON([][]any{make([]any, 10)}): nothing,
		asJSON([][]any{wireArrays()}):    full,
	} {
		names, params := []string{}, map[string]any{}
		for number, one := range values {
			name := fmt.Sprint("p", number)
			names, params[name] = append(names, "@"+name), one
		}
		sql := "SELECT " + strings.Join(names, ", ")
		equal(expected, rows(d.google.Single().Query(d.ctx, spanner.Statement{SQL: sql, Params: params})))
	}
}

func typesUUID(d *databases) {
	changeDDL(d, googleName, "CREATE TABLE Keyed (Id UUID NOT NULL, Other UUID) PRIMARY KEY (Id)")
	key := uuid.MustParse("6f1d2c3b-4a59-4e68-9768-5a4b3c2d1e0f")
	columns := []string{"Id", "Other"}
	apply(d, spanner.Insert("Keyed", columns, []any{key, spanner.NullUUID{}}))
	equal([][]any{{key, nil}}, rows(d.google.Single().Read(d.ctx, "Keyed", spanner.Key{key}, columns)))
}

func singers(d *databases, first, count int) {
	var all []*spanner.Mutation
	for number := range count {
		born := civil.Date{Year: 1950 + number, Month: 1, Day: 1}
		all = append(all, spanner.InsertOrUpdate("Singers", []string{"SingerId", "Name", "Born"},
			[]any{first + number, fmt.Sprint("singer ", first+number), born}))
	}
	apply(d, all...)
}

func readKeys(d *databases) {
	singers(d, 300, 10)
	keys := spanner.KeySets(spanner.Key{301}, spanner.Key{304}, spanner.Key{399}, spanner.Key{307})
	equal(`[["301"],["304"],["307"]]`, rows(d.google.Single().Read(d.ctx, "Singers", keys, []string{"SingerId"})))
	_, err := d.google.Single().ReadRow(d.ctx, "Singers", spanner.Key{399}, []string{"SingerId"})
	failsWith(codes.NotFound, err)
}

func readRanges(d *databases) {
	singers(d, 400, 10)
	for kind, expected := range map[spanner.KeyRangeKind]string{
		spanner.ClosedOpen:   `[["402"],["403"]]`,
		spanner.OpenClosed:   `[["403"],["404"]]`,
		spanner.OpenOpen:     `[["403"]]`,
		spanner.ClosedClosed: `[["402"],["403"],["404"]]`,
	} {
		keys := spanner.KeyRange{Start: spanner.Key{402}, End: spanner.Key{404}, Kind: kind}
		equal(expected, rows(d.google.Single().Read(d.ctx, "Singers", keys, []string{"SingerId"})))
	}
	limit := &spanner.ReadOptions{Limit: 2}
	equal(`[["400"],["401"]]`,
		rows(d.google.Single().ReadWithOptions(d.ctx, "Singers", closed(400, 499), []string{"SingerId"}, limit)))
	columns := []string{"SingerId", "AlbumId"}
	for number := range 3 {
		apply(d, spanner.Insert("Albums", columns, []any{400, number}))
	}
	apply(d, spanner.Insert("Albums", columns, []any{401, 0}))
	// A prefix of the key stands for all rows below it.
	prefix := spanner.Key{400}.AsPrefix()
	equal(`[["400","0"],["400","1"],["400","2"]]`, rows(d.google.Single().Read(d.ctx, "Albums", prefix, columns)))
}

func readIndex(d *databases) {
	singers(d, 500, 10)
	keys := closed("singer 502", "singer 504")
	found := d.google.Single().ReadUsingIndex(d.ctx, "Singers", "SingersByName", keys, []string{"Name", "SingerId", "Born"})
	equal(`[["singer 502","502","1952-01-01"],["singer 503","503","1953-01-01"],["singer 504","504","1954-01-01"]]`, rows(found))
}

func largeValue(d *databases) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 6*65536)
	apply(d, spanner.Insert("Blobs", []string{"Id", "Data"}, []any{1, data}))
	var found []byte
	must(value(d.google.Single().ReadRow(d.ctx, "Blobs", spanner.Key{1}, []string{"Data"})).Columns(&found))
	equal(true, bytes.Equal(data, found))
}

func largeResult(d *databases) {
	columns := []string{"SingerId", "Name"}
	var all []*spanner.Mutation
	var expected [][]any
	for number := range 4000 {
		name := strings.Repeat(fmt.Sprintf("%06d", number), 300)
		expected = append(expected, []any{fmt.Sprint(1000 + number), name})
		all = append(all, spanner.Insert("Singers", columns, []any{1000 + number, name}))
	}
	apply(d, all...)
	sql := "SELECT SingerId, Name FROM Singers WHERE SingerId >= 1000 ORDER BY SingerId"
	equal(expected, rows(d.google.Single().Query(d.ctx, spanner.NewStatement(sql))))
	equal(expected, rows(d.google.Single().Read(d.ctx, "Singers", closed(1000, 99999), columns)))
}
