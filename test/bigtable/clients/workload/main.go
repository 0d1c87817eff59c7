// Command workload is the program of Google's Go client that package clients runs. Its arguments are a table and a number of seconds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const batch = 20

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(table, seconds string) error {
	n, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	ctx := context.Background()
	admin, err := bigtable.NewAdminClient(ctx, "p", "i")
	if err != nil {
		return err
	}
	if err := admin.CreateTableFromConf(ctx, &bigtable.TableConf{TableID: table, SplitKeys: []string{"2", "4", "6", "8"},
		Families: map[string]bigtable.GCPolicy{"f": bigtable.MaxVersionsPolicy(1)}}); err != nil {
		return err
	}
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	t := c.OpenTable(table)
	rows := 0
	for deadline := time.Now().Add(time.Duration(n) * time.Second); time.Now().Before(deadline); {
		if err := step(ctx, t, &rows); err != nil {
			return err
		}
	}
	seen := 0
	var wrong error
	err = t.ReadRows(ctx, bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		if seen++; len(r["f"]) != 1 || string(r["f"][0].Value) != r.Key() {
			wrong = fmt.Errorf("row %s has %v", r.Key(), r)
		}
		return wrong == nil
	})
	if err == nil {
		err = wrong
	}
	if err == nil && seen != rows {
		err = fmt.Errorf("%d rows, want %d", seen, rows)
	}
	fmt.Println("rows", rows)
	return err
}

// connect returns a client. With SESSIONS it is connected as to Google's service, so that it opens sessions, but in plain text.
func connect(ctx context.Context) (*bigtable.Client, error) {
	if os.Getenv("SESSIONS") == "" {
		return bigtable.NewClient(ctx, "p", "i")
	}
	endpoint := os.Getenv("BIGTABLE_EMULATOR_HOST")
	if err := os.Unsetenv("BIGTABLE_EMULATOR_HOST"); err != nil {
		return nil, err
	}
	return bigtable.NewClientWithConfig(ctx, "p", "i", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}, DisableDirectAccess: true},
		option.WithEndpoint("passthrough:///"+endpoint), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
}

func key(i int) string { return fmt.Sprintf("%d-%07d", i%10, i) }

func mutation(i int) *bigtable.Mutation {
	m := bigtable.NewMutation()
	m.Set("f", "q", 1000, []byte(key(i)))
	return m
}

// step writes a row and a batch, and reads a row.
func step(ctx context.Context, t bigtable.TableAPI, rows *int) error {
	if err := t.Apply(ctx, key(*rows), mutation(*rows)); err != nil {
		return err
	}
	if *rows++; *rows == 1 {
		fmt.Println("begun")
	}
	var keys []string
	var ms []*bigtable.Mutation
	for i := range batch {
		keys, ms = append(keys, key(*rows+i)), append(ms, mutation(*rows+i))
	}
	errs, err := t.ApplyBulk(ctx, keys, ms)
	if err != nil || errs != nil {
		return fmt.Errorf("batch: %v, %w", errs, err)
	}
	*rows += batch
	r, err := t.ReadRow(ctx, key(*rows/2))
	if err == nil && (len(r["f"]) != 1 || string(r["f"][0].Value) != key(*rows/2)) {
		err = fmt.Errorf("row %s is %v", key(*rows/2), r)
	}
	return err
}
