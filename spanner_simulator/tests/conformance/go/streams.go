package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
)

var streamChecks = []check{
	{"stream_initial", streamInitial},
	{"stream_data", streamData},
	{"stream_heartbeats", streamHeartbeats},
	{"stream_split", streamSplit},
	{"stream_resume", streamResume},
	{"stream_tag", streamTag},
	{"stream_errors", streamErrors},
}

const changesSQL = "SELECT ChangeRecord FROM READ_Changes(start_timestamp => @start, end_timestamp => @end, " +
	"partition_token => @token, heartbeat_milliseconds => @heartbeat)"

type changeRecord struct {
	Data       []*dataChangeRecord      `spanner:"data_change_record" json:"data_change_record"`
	Heartbeats []*heartbeatRecord       `spanner:"heartbeat_record" json:"heartbeat_record"`
	Children   []*childPartitionsRecord `spanner:"child_partitions_record" json:"child_partitions_record"`
}

type dataChangeRecord struct {
	CommitTimestamp      time.Time     `spanner:"commit_timestamp" json:"commit_timestamp"`
	RecordSequence       string        `spanner:"record_sequence" json:"record_sequence"`
	ServerTransactionID  string        `spanner:"server_transaction_id" json:"server_transaction_id"`
	IsLast               bool          `spanner:"is_last_record_in_transaction_in_partition" json:"is_last_record_in_transaction_in_partition"`
	TableName            string        `spanner:"table_name" json:"table_name"`
	ColumnTypes          []*columnType `spanner:"column_types" json:"column_types"`
	Mods                 []*mod        `spanner:"mods" json:"mods"`
	ModType              string        `spanner:"mod_type" json:"mod_type"`
	ValueCaptureType     string        `spanner:"value_capture_type" json:"value_capture_type"`
	RecordsInTransaction int64         `spanner:"number_of_records_in_transaction" json:"number_of_records_in_transaction"`
	PartitionsInTxn      int64         `spanner:"number_of_partitions_in_transaction" json:"number_of_partitions_in_transaction"`
	TransactionTag       string        `spanner:"transaction_tag" json:"transaction_tag"`
	IsSystemTransaction  bool          `spanner:"is_system_transaction" json:"is_system_transaction"`
}

type columnType struct {
	Name            string           `spanner:"name" json:"name"`
	Type            spanner.NullJSON `spanner:"type" json:"type"`
	IsPrimaryKey    bool             `spanner:"is_primary_key" json:"is_primary_key"`
	OrdinalPosition int64            `spanner:"ordinal_position" json:"ordinal_position"`
}

type mod struct {
	Keys      spanner.NullJSON `spanner:"keys" json:"keys"`
	NewValues spanner.NullJSON `spanner:"new_values" json:"new_values"`
	OldValues spanner.NullJSON `spanner:"old_values" json:"old_values"`
}

type heartbeatRecord struct {
	Timestamp time.Time `spanner:"timestamp" json:"timestamp"`
}

type childPartitionsRecord struct {
	StartTimestamp time.Time         `spanner:"start_timestamp" json:"start_timestamp"`
	RecordSequence string            `spanner:"record_sequence" json:"record_sequence"`
	Children       []*childPartition `spanner:"child_partitions" json:"child_partitions"`
}

type childPartition struct {
	Token   string   `spanner:"token" json:"token"`
	Parents []string `spanner:"parent_partition_tokens" json:"parent_partition_tokens"`
}

var errEnough = errors.New("enough")

// reader sends one change stream query and hands over its records; token "" and a nil end are NULL.
type reader func(token string, start time.Time, end *time.Time, each func(*changeRecord) error) error

func googleChanges(d *databases) reader {
	return func(token string, start time.Time, end *time.Time, each func(*changeRecord) error) error {
		ctx, cancel := context.WithCancel(d.ctx)
		defer cancel()
		found := d.google.Single().Query(ctx, spanner.Statement{SQL: changesSQL, Params: map[string]any{
			"start":     start,
			"end":       end,
			"token":     spanner.NullString{StringVal: token, Valid: token != ""},
			"heartbeat": int64(1000),
		}})
		defer found.Stop()
		for {
			row, err := found.Next()
			if errors.Is(err, iterator.Done) {
				return nil
			}
			if err != nil {
				return err
			}
			var changes []*changeRecord
			if err := row.Columns(&changes); err != nil {
				return err
			}
			for _, one := range changes {
				if err := each(one); err != nil {
					return err
				}
			}
		}
	}
}

// tokens are the stream partitions at this time.
func tokens(read reader, start time.Time) (found []string) {
	must(read("", start, nil, func(one *changeRecord) error {
		found = append(found, one.Children[0].Children[0].Token)
		return nil
	}))
	return found
}

// follow reads from start to end, children after parents: data records, number of tokens, heartbeats.
func follow(read reader, start, end time.Time) (found []*dataChangeRecord, count int, beats []time.Time) {
	type partition struct {
		start   time.Time
		parents []string
	}
	waiting, done := map[string]partition{}, map[string]bool{}
	for _, token := range tokens(read, start) {
		waiting[token] = partition{start: start}
	}
	ready := func() string {
		for token, one := range waiting {
			held := false
			for _, parent := range one.parents {
				held = held || !done[parent]
			}
			if !held {
				return token
			}
		}
		panic("stream partitions wait for each other")
	}
	for len(waiting) > 0 {
		token := ready()
		must(read(token, waiting[token].start, &end, func(one *changeRecord) error {
			found = append(found, one.Data...)
			for _, beat := range one.Heartbeats {
				beats = append(beats, beat.Timestamp)
			}
			for _, record := range one.Children {
				for _, child := range record.Children {
					if !done[child.Token] && !record.StartTimestamp.After(end) {
						waiting[child.Token] = partition{record.StartTimestamp, child.Parents}
					}
				}
			}
			return nil
		}))
		delete(waiting, token)
		done[token] = true
	}
	return found, len(done), beats
}

var accountColumns = []string{"Id", "Balance", "Owner"}

func insertAccount(values ...any) *spanner.Mutation {
	return spanner.Insert("Accounts", accountColumns, values)
}

func updateAccount(values ...any) *spanner.Mutation {
	return spanner.Update("Accounts", accountColumns[:2], values)
}

func streamInitial(d *databases) {
	start := apply(d, insertAccount(1, 100, "initial"))
	seen := map[string]bool{}
	number := 0
	must(googleChanges(d)("", start, nil, func(one *changeRecord) error {
		equal([]int{0, 0, 1, 1}, []int{len(one.Data), len(one.Heartbeats), len(one.Children), len(one.Children[0].Children)})
		record := one.Children[0]
		equal(start.UTC(), record.StartTimestamp.UTC())
		equal(fmt.Sprintf("%08d", number), record.RecordSequence)
		equal([]string{}, record.Children[0].Parents)
		seen[record.Children[0].Token] = true
		number++
		return nil
	}))
	equal(true, len(seen) == number && number > 0)
}

func streamData(d *databases) {
	start := apply(d, insertAccount(10, 1, "a"), insertAccount(11, nil, nil))
	apply(d, updateAccount(10, 2))
	last := apply(d, spanner.Delete("Accounts", spanner.Key{11}))
	found, _, _ := follow(googleChanges(d), start, last)
	sort.Slice(found, func(one, other int) bool {
		if !found[one].CommitTimestamp.Equal(found[other].CommitTimestamp) {
			return found[one].CommitTimestamp.Before(found[other].CommitTimestamp)
		}
		return found[one].RecordSequence < found[other].RecordSequence
	})
	mods := [][]any{}
	for _, record := range found {
		for _, one := range record.Mods {
			mods = append(mods, []any{record.ModType, one.Keys.Value, one.NewValues.Value, one.OldValues.Value})
		}
	}
	equal(`[["INSERT",{"Id":"10"},{"Balance":"1","Owner":"a"},{}],`+
		`["INSERT",{"Id":"11"},{"Balance":null,"Owner":null},{}],`+
		`["UPDATE",{"Id":"10"},{"Balance":"2"},{"Balance":"1"}],`+
		`["DELETE",{"Id":"11"},{},{"Balance":null,"Owner":null}]]`, mods)
	columns := [][]any{}
	for _, one := range found[0].ColumnTypes {
		columns = append(columns, []any{one.Name, one.Type.Value, one.IsPrimaryKey, one.OrdinalPosition})
	}
	equal(`[["Id",{"code":"INT64"},true,1],["Balance",{"code":"INT64"},false,2],["Owner",{"code":"STRING"},false,3]]`, columns)
	equal([]string{"Accounts", "OLD_AND_NEW_VALUES"}, []string{found[0].TableName, found[0].ValueCaptureType})
	equal([]time.Time{start.UTC(), last.UTC()},
		[]time.Time{found[0].CommitTimestamp.UTC(), found[len(found)-1].CommitTimestamp.UTC()})
}

func streamHeartbeats(d *databases) {
	start := apply(d, insertAccount(20, 1, "a"))
	read := googleChanges(d)
	end := start.Add(3500 * time.Millisecond)
	_, _, beats := follow(read, start, end)
	for _, beat := range beats {
		equal(false, beat.Before(start) || beat.After(end))
	}
	equal(true, len(beats) >= 2)
	detail = fmt.Sprint(len(beats), " heartbeats")
}

func streamSplit(d *databases) {
	twenty := func(write func(id int) *spanner.Mutation) time.Time {
		var all []*spanner.Mutation
		for number := range 20 {
			all = append(all, write(1000+number))
		}
		return apply(d, all...)
	}
	start := twenty(func(id int) *spanner.Mutation { return insertAccount(id, 0, "split") })
	last := start
	for _, balance := range []int{1, 2} {
		control("split", map[string]any{"database": "go-google", "stream": "Changes"})
		last = twenty(func(id int) *spanner.Mutation { return updateAccount(id, balance) })
	}
	found, count, _ := follow(googleChanges(d), start, last)
	seen, expected := map[string][]string{}, map[string][]string{}
	for _, record := range found {
		for _, one := range record.Mods {
			id := one.Keys.Value.(map[string]any)["Id"].(string)
			seen[id] = append(seen[id], one.NewValues.Value.(map[string]any)["Balance"].(string))
		}
	}
	for number := range 20 {
		expected[fmt.Sprint(1000+number)] = []string{"0", "1", "2"}
	}
	equal(expected, seen)
	equal(true, count >= 3)
	detail = fmt.Sprint(count, " stream partitions")
}

func streamResume(d *databases) {
	start := apply(d, insertAccount(30, 0, "resume"))
	read := googleChanges(d)
	token := ""
	for _, one := range tokens(read, start) {
		must(read(one, start, &start, func(change *changeRecord) error {
			if len(change.Data) > 0 {
				token = one
			}
			return nil
		}))
	}
	seen, interrupted := []string{}, 0.0
	err := read(token, start, nil, func(one *changeRecord) error {
		for _, record := range one.Data {
			for _, change := range record.Mods {
				seen = append(seen, change.NewValues.Value.(map[string]any)["Balance"].(string))
			}
		}
		if len(one.Data) == 0 {
			return nil
		}
		if len(seen) >= 20 {
			return errEnough
		}
		answer := control("interrupt", map[string]any{"database": "go-google", "stream": "Changes", "token": token})
		interrupted += answer["interrupted"].(float64)
		apply(d, updateAccount(30, len(seen)))
		return nil
	})
	equal(true, errors.Is(err, errEnough))
	expected := []string{}
	for number := range 20 {
		expected = append(expected, fmt.Sprint(number))
	}
	equal(expected, seen)
	equal(true, interrupted > 0)
	detail = fmt.Sprint(interrupted, " interruptions")
}

func streamTag(d *databases) {
	answer := value(d.google.ReadWriteTransactionWithOptions(d.ctx,
		func(_ context.Context, t *spanner.ReadWriteTransaction) error {
			return t.BufferWrite([]*spanner.Mutation{insertAccount(40, 1, "tagged")})
		}, spanner.TransactionOptions{TransactionTag: "conformance"}))
	last := apply(d, insertAccount(41, 1, "untagged"))
	found, _, _ := follow(googleChanges(d), answer.CommitTs, last)
	tags := map[string]string{}
	for _, record := range found {
		tags[record.Mods[0].Keys.Value.(map[string]any)["Id"].(string)] = record.TransactionTag
	}
	equal(map[string]string{"40": "conformance", "41": ""}, tags)
}

func streamErrors(d *databases) {
	start := apply(d, insertAccount(50, 1, "errors"))
	read := googleChanges(d)
	nothing := func(*changeRecord) error { return nil }
	past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	failsWith(codes.OutOfRange, read("", past, nil, nothing))
	failsWith(codes.InvalidArgument, read("nonsense", start, nil, nothing))
	params := map[string]any{"start": spanner.NullTime{}, "end": spanner.NullTime{}, "token": spanner.NullString{}, "heartbeat": 1000}
	_, err := tryRows(d.google.Single().Query(d.ctx, spanner.Statement{SQL: changesSQL, Params: params}))
	failsWith(codes.InvalidArgument, err)
}
