package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
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
	for _, nodes := range c.nodes {
		if err := runOn(ctx, stele, name, p, nodes); err != nil {
			return fmt.Errorf("with %d nodes: %w", nodes, err)
		}
	}
	return nil
}

// runOn runs the programs of a client against a new cluster. The node that is killed is the only one or, of three, one that is not the
// client's.
func runOn(ctx context.Context, stele, name string, p *programs, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "stele-bigtable-clients-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := startCluster(ctx, stele, dir, nodes)
	if err != nil {
		return err
	}
	defer c.stop()
	for range 2 {
		if err := quickstart(ctx, p, c.endpoint()); err != nil {
			return err
		}
	}
	rows, err := work(ctx, p, c)
	if err != nil {
		return err
	}
	fmt.Printf("ok   %s, %d nodes, one killed and restarted: %s, no failed operation\n", name, nodes, rows)
	return nil
}

// quickstart runs the quickstart program of a language, if it has one.
func quickstart(ctx context.Context, p *programs, endpoint string) error {
	if p.quickstart == nil {
		return nil
	}
	out, err := p.command(ctx, endpoint, p.quickstart).Output()
	if err != nil {
		return fmt.Errorf("quickstart: %w, after %q", err, out)
	}
	if want := "row0: hello\nrow1: bonjour\nrow2: hallo\n"; string(out) != want {
		return fmt.Errorf("quickstart: output %q, want %q", out, want)
	}
	return nil
}

// work runs the work program, and kills and restarts a node meanwhile. It returns the program's last line.
func work(ctx context.Context, p *programs, c *cluster) (rows string, err error) {
	cmd := p.command(ctx, c.endpoint(), append(p.work, "work", fmt.Sprint(workSeconds)))
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

// command returns a command of the client, connected to an endpoint.
func (p *programs) command(ctx context.Context, endpoint string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), p.env...), "BIGTABLE_EMULATOR_HOST="+endpoint)
	return cmd
}
