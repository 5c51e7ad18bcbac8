package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
)

var transactionChecks = []check{
	{"transaction_retried", transactionRetried},
}

var counterColumns = []string{"Name", "Value"}

func put(d *databases, name string, number int) time.Time {
	return apply(d, spanner.InsertOrUpdate("Counters", counterColumns, []any{name, number}))
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
	row := value(d.google.Single().ReadRow(d.ctx, "Counters", spanner.Key{"contended"}, counterColumns[1:]))
	var found int64
	must(row.Columns(&found))
	equal(2, found)
	detail = fmt.Sprint(attempts.Load(), " attempts")
}
