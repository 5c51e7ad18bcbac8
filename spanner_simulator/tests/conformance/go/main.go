// The checks of ../README.md by the official Go client: a JSON line for each.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const checkTimeout = 2 * time.Minute

// databases holds the clients, and the context of the check that runs.
type databases struct {
	ctx       context.Context
	instances *instance.InstanceAdminClient
	admin     *database.DatabaseAdminClient
	google    *spanner.Client
	postgres  *spanner.Client
}

type check struct {
	name string
	walk func(*databases)
}

// detail is what a check has to say about itself though it passed.
var detail string

func main() {
	d := &databases{}
	for _, list := range [][]check{rowChecks, transactionChecks, streamChecks, postgresChecks} {
		for _, one := range list {
			line, _ := json.Marshal(outcome(d, one))
			fmt.Println(string(line))
		}
	}
}

type line struct {
	Check  string `json:"check"`
	Ok     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func outcome(d *databases, one check) (found line) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	d.ctx, detail = ctx, ""
	defer func() {
		if failure := recover(); failure != nil {
			found = line{one.name, false, strings.TrimSpace(fmt.Sprintf("%v%s", failure, place()))}
		}
	}()
	one.walk(d)
	return line{one.name, true, detail}
}

// place names the line of this program that panicked.
func place() string {
	for depth := 3; depth < 30; depth++ {
		_, file, number, ok := runtime.Caller(depth)
		if ok && strings.HasSuffix(filepath.Dir(file), "go") && filepath.Base(file) != "main.go" && !strings.Contains(file, "runtime") {
			return fmt.Sprintf(" at %s:%d", filepath.Base(file), number)
		}
	}
	return ""
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](found T, err error) T {
	must(err)
	return found
}

// equal compares values by their JSON; wire values are JSON already.
func equal(expected, found any) {
	if !reflect.DeepEqual(asJSON(expected), asJSON(found)) {
		panic(fmt.Sprintf("expected %s, found %s", short(asJSON(expected)), short(asJSON(found))))
	}
}

func asJSON(what any) string {
	if text, ok := what.(string); ok {
		return text
	}
	return string(value(json.Marshal(what)))
}

func short(text string) string {
	if len(text) > 400 {
		return text[:400] + "…"
	}
	return text
}

func failsWith(code codes.Code, err error) string {
	if err == nil {
		panic(fmt.Sprintf("%s was due, and nothing went wrong", code))
	}
	found := spanner.ErrCode(err)
	if found == codes.Unknown {
		found = status.Code(err)
	}
	if found != code {
		panic(fmt.Sprintf("%s was due, found %v", code, err))
	}
	return err.Error()
}

// rows renders all rows as a JSON array of arrays of wire values.
func rows(found *spanner.RowIterator) string {
	text, err := tryRows(found)
	must(err)
	return text
}

func tryRows(found *spanner.RowIterator) (string, error) {
	defer found.Stop()
	all := [][]any{}
	for {
		row, err := found.Next()
		if errors.Is(err, iterator.Done) {
			return asJSON(all), nil
		}
		if err != nil {
			return "", err
		}
		values := []any{}
		for index := range row.Size() {
			var column spanner.GenericColumnValue
			if err := row.Column(index, &column); err != nil {
				return "", err
			}
			values = append(values, column.Value.AsInterface())
		}
		all = append(all, values)
	}
}

// statements reads the DDL of one of the shared schemas.
func statements(name string) []string {
	text := value(os.ReadFile(filepath.Join(os.Getenv("CONFORMANCE_SCHEMA"), name)))
	var found []string
	for _, one := range strings.Split(string(text), ";") {
		if one = strings.TrimSpace(one); one != "" {
			found = append(found, one)
		}
	}
	return found
}

// control calls one verb of the simulator's control port.
func control(verb string, arguments map[string]any) map[string]any {
	address := os.Getenv("CONFORMANCE_CONTROL")
	body := bytes.NewReader(value(json.Marshal(arguments)))
	answer := value(http.Post("http://"+address+"/"+verb, "application/json", body))
	defer answer.Body.Close()
	found := map[string]any{}
	must(json.NewDecoder(answer.Body).Decode(&found))
	if answer.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("control %s: %v", verb, found))
	}
	return found
}
