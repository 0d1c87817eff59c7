package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

const (
	// workSeconds is how long a client works. The node is killed one second after the first acknowledged write, and is down for two.
	workSeconds = 12
	killAfter   = time.Second
	downTime    = 2 * time.Second
	// runTimeout bounds one client against one cluster, with its last reads.
	runTimeout = 3 * time.Minute
)

func main() {
	stele := flag.String("stele", "bin/stele", "the program of nodes")
	cache := flag.String("cache", ".cache/bigtable-clients", "the folder for clients")
	only := flag.String("clients", strings.Join(names(), ","), "the clients to run, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed := 0
	for _, name := range strings.Split(*only, ",") {
		if err := runClient(ctx, *stele, *cache, name); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", name, err)
		}
	}
	stop()
	fmt.Printf("%d passed, %d failed\n", len(strings.Split(*only, ","))-failed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// runClient installs a client, and runs it against clusters.
func runClient(ctx context.Context, stele, cache, name string) error {
	c := find(name)
	if c == nil {
		return fmt.Errorf("there is no such client: want one of %s", strings.Join(names(), ", "))
	}
	p, err := c.install(ctx, place{cache, stele})
	if err != nil {
		return err
	}
	for _, s := range c.shapes {
		if err := runOn(ctx, stele, name, p, s); err != nil {
			return fmt.Errorf("with %v: %w", s, err)
		}
	}
	return nil
}

// runOn runs the programs of a client against a new cluster. The node that is killed is the only one or, of three, one that is not the
// client's.
func runOn(ctx context.Context, stele, name string, p *programs, s shape) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "stele-bigtable-clients-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := startCluster(ctx, stele, dir, s)
	if err != nil {
		return err
	}
	defer c.stop()
	if p.quickstart != nil && !s.secure {
		for range 2 {
			if err := quickstart(ctx, p.quickstart(c.endpoint())); err != nil {
				return err
			}
		}
	}
	commands, err := p.work(c)
	if err != nil {
		return err
	}
	for i, work := range commands {
		rows, err := workOn(ctx, c, work, fmt.Sprint("work", i))
		if err != nil {
			return err
		}
		fmt.Printf("ok   %s, %v%s, one killed and restarted: %s, no failed operation\n", name, s, work.how, rows)
	}
	return nil
}

// quickstart runs a quickstart program.
func quickstart(ctx context.Context, c command) error {
	out, err := c.cmd(ctx).Output()
	if err != nil {
		return fmt.Errorf("quickstart: %w, after %q", err, out)
	}
	out = bytes.ReplaceAll(out, []byte("\x1b[0m"), nil) // of Maven
	if want := "row0: hello\nrow1: bonjour\nrow2: hallo\n"; string(out) != want {
		return fmt.Errorf("quickstart: output %q, want %q", out, want)
	}
	return nil
}

// workOn runs a work program, and kills and restarts a node meanwhile. It returns the program's last line.
func workOn(ctx context.Context, c *cluster, work command, table string) (rows string, err error) {
	work.args = append(work.args, table, fmt.Sprint(workSeconds))
	cmd := work.cmd(ctx)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var fault error
	for s := bufio.NewScanner(out); s.Scan(); {
		if rows = s.Text(); rows == "begun" {
			fault = c.restartLast(ctx)
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("work: %w\n%s", err, &messages)
	}
	if !strings.HasPrefix(rows, "rows ") {
		return "", fmt.Errorf("work ended with %q", rows)
	}
	return rows, fault
}
