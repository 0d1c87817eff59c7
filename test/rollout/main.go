package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

const (
	tableName = "rollout"
	family    = "f"
	// tablets is how many tablets the table begins with, so that each node has some.
	tablets = 24
	// makeTimeout and verifyTimeout bound what is done once.
	makeTimeout, verifyTimeout = time.Minute, 2 * time.Minute
)

func main() {
	addr := flag.String("addr", client.DefaultAddr, "host:port of nodes, between commas")
	workers := flag.Int("workers", 8, "workers that write and read")
	pause := flag.Duration("pause", 20*time.Millisecond, "pause of a worker between two operations")
	credential := flag.String("credential", "", "file that proves who the users are")
	flag.Parse()
	if err := run(*addr, *credential, *workers, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run loads the cluster until standard input ends, and answers the lines that come there.
func run(addr, credential string, workers int, pause time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	own, err := pki.ReadCredential(credential)
	if err != nil {
		return err
	}
	c, err := client.Open(ctx, addr, client.Config{
		Credential: own,
		// Each row is written by one worker, with a timestamp of its own: again is as once.
		Replay: client.ReplayIdempotent,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := makeTable(ctx, c, workers); err != nil {
		return err
	}
	l := newLoad(c.Table(tableName), workers, pause)
	l.start(ctx)
	defer l.stop()
	fmt.Println("loading")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "phase":
			fmt.Println(l.phase())
		case "verify":
			l.stop()
			rows, err := l.verify(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("verified %d rows\n", rows)
		default:
			return fmt.Errorf("no such question: %q", in.Text())
		}
	}
	return in.Err()
}

// makeTable makes the table, cut so that each worker's rows are in several tablets.
func makeTable(ctx context.Context, c *client.Client, workers int) error {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	each := max(tablets/workers, 1)
	var at []string
	for w := range workers {
		for i := range each {
			if w+i > 0 {
				at = append(at, prefix(w)+strings.Repeat("0", i)+fmt.Sprint(i*10/each))
			}
		}
	}
	_, err := c.Tables().CreateSplit(ctx, tableName, sorted(at), table.FamilySpec{Name: family})
	return err
}
