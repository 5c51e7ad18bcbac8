package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
)

var transactionChecks = []check{
	{"query_parameters", queryParameters},
	{"query_in_unnest", queryInUnnest},
	{"query_join", queryJoin},
	{"query_arrays", queryArrays},
	{"query_index", queryIndex},
	{"query_no_rows", queryNoRows},
	{"dml_inline_begin", dmlInlineBegin},
	{"dml_returning", dmlReturning},
	{"dml_batch", dmlBatch},
	{"dml_batch_error", dmlBatchError},
	{"dml_partitioned", dmlPartitioned},
	{"dml_seen_in_transaction", dmlSeenInTransaction},
	{"transaction_retried", transactionRetried},
	{"transaction_rolled_back", transactionRolledBack},
	{"snapshot_strong", snapshotStrong},
	{"snapshot_exact_staleness", snapshotExactStaleness},
	{"snapshot_read_timestamp", snapshotReadTimestamp},
	{"snapshot_bounded", snapshotBounded},
	{"partition_read", partitionRead},
	{"partition_query", partitionQuery},
}

var counterColumns = []string{"Name", "Value"}

func query(d *databases, sql string, params map[string]any) string {
	return rows(d.google.Single().Query(d.ctx, spanner.Statement{SQL: sql, Params: params}))
}

// update runs one statement in a transaction of its own.
func update(d *databases, sql string) (count int64, committed time.Time) {
	committed = value(d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) (err error) {
		count, err = t.Update(ctx, spanner.NewStatement(sql))
		return err
	}))
	return count, committed
}

func put(d *databases, name string, number int) time.Time {
	return apply(d, spanner.InsertOrUpdate("Counters", counterColumns, []any{name, number}))
}

// counter is the value of a counter, as text; "none" where it is not there.
func counter(d *databases, name string, bounds ...spanner.TimestampBound) string {
	single := d.google.Single()
	for _, bound := range bounds {
		single = single.WithTimestampBound(bound)
	}
	row, err := single.ReadRow(d.ctx, "Counters", spanner.Key{name}, counterColumns[1:])
	if spanner.ErrCode(err) == codes.NotFound {
		return "none"
	}
	must(err)
	var found int64
	must(row.Columns(&found))
	return fmt.Sprint(found)
}

func albums(d *databases, singer int) {
	columns := []string{"SingerId", "AlbumId", "Title", "Price"}
	apply(d,
		spanner.InsertOrUpdate("Singers", []string{"SingerId", "Name"}, []any{singer, "first"}),
		spanner.InsertOrUpdate("Singers", []string{"SingerId", "Name"}, []any{singer + 1, "second"}),
		spanner.InsertOrUpdate("Albums", columns, []any{singer, 1, "a", 10}),
		spanner.InsertOrUpdate("Albums", columns, []any{singer, 2, "b", 20}),
		spanner.InsertOrUpdate("Albums", columns, []any{singer + 1, 1, "c", nil}))
}

func queryParameters(d *databases) {
	albums(d, 600)
	found := query(d,
		"SELECT Title, Price + @more AS Dearer FROM Albums "+
			"WHERE SingerId = @SINGER AND Title >= @title ORDER BY Title DESC LIMIT @most OFFSET 0",
		map[string]any{"singer": 600, "title": "a", "most": 5, "more": 1, "unused": spanner.NullString{}})
	equal(`[["b","21"],["a","11"]]`, found)
}

func queryInUnnest(d *databases) {
	albums(d, 610)
	equal(`[["1","a"],["2","b"]]`, query(d,
		"SELECT AlbumId, Title FROM Albums WHERE SingerId = 610 AND Title IN UNNEST(@titles) ORDER BY AlbumId",
		map[string]any{"titles": []string{"b", "c", "a"}}))
	equal(`[["0"]]`, query(d,
		"SELECT COUNT(*) FROM Albums WHERE SingerId IN UNNEST(@none)", map[string]any{"none": []int64{}}))
}

func queryJoin(d *databases) {
	albums(d, 620)
	equal(`[["first","2","30"],["second","1",null]]`, query(d,
		"SELECT s.Name, COUNT(a.AlbumId) AS n, SUM(a.Price) AS total FROM Singers AS s "+
			"LEFT JOIN Albums AS a ON a.SingerId = s.SingerId WHERE s.SingerId BETWEEN 620 AND 629 "+
			"GROUP BY s.Name HAVING COUNT(*) > 0 ORDER BY s.Name", nil))
}

func queryArrays(d *databases) {
	albums(d, 630)
	given := []spanner.NullInt64{{Int64: 1, Valid: true}, {}, {Int64: 3, Valid: true}}
	equal(`[[["a","b"],"3",[["1","x"]]]]`, query(d,
		"SELECT ARRAY(SELECT Title FROM Albums WHERE SingerId = 630 ORDER BY AlbumId), "+
			"ARRAY_LENGTH(@given), ARRAY(SELECT AS STRUCT 1 AS a, 'x' AS b)",
		map[string]any{"given": given}))
	equal(`[["7","0"],["8","1"]]`, query(d,
		"SELECT n, o FROM UNNEST(@given) AS n WITH OFFSET AS o ORDER BY o",
		map[string]any{"given": []int64{7, 8}}))
}

func queryIndex(d *databases) {
	albums(d, 640)
	equal(`[["641"]]`, query(d,
		"SELECT SingerId FROM Singers@{FORCE_INDEX=SingersByName} "+
			"WHERE Name = 'second' AND SingerId BETWEEN 640 AND 649", nil))
}

func queryNoRows(d *databases) {
	found := d.google.Single().Query(d.ctx, spanner.NewStatement("SELECT Name, Value AS v FROM Counters WHERE Name = 'none'"))
	_, err := found.Next()
	equal(true, errors.Is(err, iterator.Done))
	fields := found.Metadata.RowType.Fields
	equal([]string{"Name", "v"}, []string{fields[0].Name, fields[1].Name})
}

func dmlInlineBegin(d *databases) {
	counts := make([]int64, 3)
	value(d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) error {
		for number, one := range []spanner.Statement{
			{
				SQL:    "INSERT INTO Counters (Name, Value) VALUES ('dml a', 1), ('dml b', @two)",
				Params: map[string]any{"two": 2},
			},
			{SQL: "UPDATE Counters SET Value = Value + 10 WHERE STARTS_WITH(Name, 'dml ')"},
			{SQL: "DELETE FROM Counters WHERE Name = 'dml a'"},
		} {
			count, err := t.Update(ctx, one)
			if err != nil {
				return err
			}
			counts[number] = count
		}
		return nil
	}))
	equal([]int{2, 2, 1}, counts)
	equal("12", counter(d, "dml b"))
}

func dmlReturning(d *databases) {
	var found []string
	value(d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) error {
		found = nil
		for _, sql := range []string{
			"INSERT INTO Counters (Name, Value) VALUES ('returned', 5) THEN RETURN Name, Value * 2",
			"UPDATE Counters SET Value = 6 WHERE Name = 'returned' THEN RETURN Value",
			"DELETE FROM Counters WHERE Name = 'returned' THEN RETURN Name, Value",
		} {
			answer := t.Query(ctx, spanner.NewStatement(sql))
			text, err := tryRows(answer)
			if err != nil {
				return err
			}
			found = append(found, text, fmt.Sprint(answer.RowCount))
		}
		return nil
	}))
	equal(`[["returned","10"]] 1 [["6"]] 1 [["returned","6"]] 1`, strings.Join(found, " "))
}

func batch(d *databases, all ...string) (counts []int64, err error) {
	_, err = d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) (err error) {
		var statements []spanner.Statement
		for _, sql := range all {
			statements = append(statements, spanner.Statement{SQL: sql, Params: map[string]any{"value": 2}})
		}
		counts, err = t.BatchUpdate(ctx, statements)
		return err
	})
	return counts, err
}

func dmlBatch(d *databases) {
	counts, err := batch(d,
		"INSERT INTO Counters (Name, Value) VALUES ('batch', 1)",
		"UPDATE Counters SET Value = @value WHERE Name = 'batch'",
		"DELETE FROM Counters WHERE Name = 'no such'")
	must(err)
	equal([]int{1, 1, 0}, counts)
	equal("2", counter(d, "batch"))
}

func dmlBatchError(d *databases) {
	counts, err := batch(d,
		"INSERT INTO Counters (Name, Value) VALUES ('partly', 1)",
		"INSERT INTO Counters (Name, Value) VALUES ('partly', 2)",
		"INSERT INTO Counters (Name, Value) VALUES ('never tried', 3)")
	failsWith(codes.AlreadyExists, err)
	equal([]int{1}, counts)
	equal("none none", counter(d, "partly")+" "+counter(d, "never tried"))
}

func dmlPartitioned(d *databases) {
	for number := range 50 {
		put(d, fmt.Sprintf("many %03d", number), 1)
	}
	count := value(d.google.PartitionedUpdate(d.ctx, spanner.Statement{
		SQL:    "UPDATE Counters SET Value = @value WHERE STARTS_WITH(Name, 'many ')",
		Params: map[string]any{"value": 3},
	}))
	equal(50, count)
	equal(`[["150"]]`, query(d, "SELECT SUM(Value) FROM Counters WHERE STARTS_WITH(Name, 'many ')", nil))
}

func dmlSeenInTransaction(d *databases) {
	put(d, "seen", 1)
	sql := spanner.NewStatement("SELECT Value FROM Counters WHERE Name = 'seen'")
	var found []string
	value(d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) error {
		found = nil
		if _, err := t.Update(ctx, spanner.NewStatement("UPDATE Counters SET Value = 2 WHERE Name = 'seen'")); err != nil {
			return err
		}
		read, err := tryRows(t.Read(ctx, "Counters", spanner.Key{"seen"}, counterColumns[1:]))
		if err != nil {
			return err
		}
		found = append(found, read, counter(d, "seen"))
		// Mutations wait for the commit, and are applied after the statements.
		change := spanner.Update("Counters", counterColumns, []any{"seen", 3})
		if err := t.BufferWrite([]*spanner.Mutation{change}); err != nil {
			return err
		}
		again, err := tryRows(t.Query(ctx, sql))
		found = append(found, again)
		return err
	}))
	equal(`[["2"]] 1 [["2"]]`, strings.Join(found, " "))
	equal("3", counter(d, "seen"))
}

func transactionRetried(d *databases) {
	put(d, "contended", 0)
	var attempts atomic.Int32
	var meeting sync.WaitGroup
	meeting.Add(2)
	both := make(chan struct{})
	go func() { meeting.Wait(); close(both) }()
	failures := make(chan error, 2)
	for range 2 {
		first := true
		go func() {
			_, err := d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) error {
				attempts.Add(1)
				row, err := t.ReadRow(ctx, "Counters", spanner.Key{"contended"}, counterColumns[1:])
				if err != nil {
					return err
				}
				if first {
					// Both have read before either writes; a server that locks lets only one come here.
					first = false
					meeting.Done()
					select {
					case <-both:
					case <-time.After(2 * time.Second):
					}
				}
				var number int64
				if err := row.Columns(&number); err != nil {
					return err
				}
				change := spanner.Update("Counters", counterColumns, []any{"contended", number + 1})
				return t.BufferWrite([]*spanner.Mutation{change})
			})
			failures <- err
		}()
	}
	must(<-failures)
	must(<-failures)
	equal("2", counter(d, "contended"))
	detail = fmt.Sprint(attempts.Load(), " attempts")
}

func transactionRolledBack(d *databases) {
	second := errors.New("second thoughts")
	_, err := d.google.ReadWriteTransaction(d.ctx, func(ctx context.Context, t *spanner.ReadWriteTransaction) error {
		statement := spanner.NewStatement("INSERT INTO Counters (Name, Value) VALUES ('undone', 1)")
		if _, err := t.Update(ctx, statement); err != nil {
			return err
		}
		return second
	})
	equal(true, errors.Is(err, second))
	equal("none", counter(d, "undone"))
}

func snapshotStrong(d *databases) {
	put(d, "strong", 1)
	snapshot := d.google.ReadOnlyTransaction()
	defer snapshot.Close()
	before := rows(snapshot.Read(d.ctx, "Counters", spanner.Key{"strong"}, counterColumns[1:]))
	put(d, "strong", 2)
	after := rows(snapshot.Query(d.ctx, spanner.NewStatement("SELECT Value FROM Counters WHERE Name = 'strong'")))
	equal(`[["1"]] [["1"]] 2`, before+" "+after+" "+counter(d, "strong"))
}

func snapshotExactStaleness(d *databases) {
	put(d, "stale", 1)
	time.Sleep(1500 * time.Millisecond)
	put(d, "stale", 2)
	equal("1", counter(d, "stale", spanner.ExactStaleness(time.Second)))
}

func snapshotReadTimestamp(d *databases) {
	first, second := put(d, "at", 1), put(d, "at", 2)
	equal("1", counter(d, "at", spanner.ReadTimestamp(first)))
	equal("2", counter(d, "at", spanner.ReadTimestamp(second)))
	snapshot := d.google.ReadOnlyTransaction().WithTimestampBound(spanner.ReadTimestamp(first))
	defer snapshot.Close()
	found := snapshot.Query(d.ctx, spanner.NewStatement("SELECT Value FROM Counters WHERE Name = 'at'"))
	equal(`[["1"]]`, rows(found))
	equal(first.UTC(), value(snapshot.Timestamp()).UTC())
}

func snapshotBounded(d *databases) {
	last := put(d, "bounded", 1)
	equal("1", counter(d, "bounded", spanner.MinReadTimestamp(last)))
	found := counter(d, "bounded", spanner.MaxStaleness(time.Hour))
	equal(true, found == "1" || found == "none")
}

func partitioned(d *databases, prefix string, parts func(*spanner.BatchReadOnlyTransaction) ([]*spanner.Partition, error)) {
	expected := []string{}
	for number := range 20 {
		name := fmt.Sprintf("%s%02d", prefix, number)
		expected = append(expected, name)
		put(d, name, 1)
	}
	snapshot := value(d.google.BatchReadOnlyTransaction(d.ctx, spanner.StrongRead()))
	defer snapshot.Close()
	all := value(parts(snapshot))
	put(d, prefix+"99", 1)
	found := []string{}
	for _, part := range all {
		must(snapshot.Execute(d.ctx, part).Do(func(row *spanner.Row) error {
			var name string
			err := row.Columns(&name)
			found = append(found, name)
			return err
		}))
	}
	sort.Strings(found)
	equal(expected, found)
}

func partitionRead(d *databases) {
	partitioned(d, "part ", func(t *spanner.BatchReadOnlyTransaction) ([]*spanner.Partition, error) {
		keys := spanner.KeyRange{Start: spanner.Key{"part "}, End: spanner.Key{"part~"}}
		return t.PartitionRead(d.ctx, "Counters", keys, counterColumns[:1], spanner.PartitionOptions{})
	})
}

func partitionQuery(d *databases) {
	partitioned(d, "slice ", func(t *spanner.BatchReadOnlyTransaction) ([]*spanner.Partition, error) {
		refused := spanner.NewStatement("SELECT COUNT(*) FROM Counters ORDER BY 1")
		_, err := t.PartitionQuery(d.ctx, refused, spanner.PartitionOptions{})
		failsWith(codes.InvalidArgument, err)
		statement := spanner.Statement{
			SQL:    "SELECT Name FROM Counters WHERE STARTS_WITH(Name, @start)",
			Params: map[string]any{"start": "slice "},
		}
		return t.PartitionQuery(d.ctx, statement, spanner.PartitionOptions{})
	})
}
