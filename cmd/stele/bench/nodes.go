package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/bench"
)

// nodeMeters reads the resource usage of a cluster's nodes from their metrics.
type nodeMeters struct {
	a      *cli.App
	hosts  []string // host:port of their HTTP servers; empty if any node has none
	client http.Client
	last   bench.Usage // the last sum that could be read
}

// metricsWait is the timeout of a request for a node's metrics.
const metricsWait = 5 * time.Second

// meterNodes returns the meters of the nodes that are alive.
func meterNodes(a *cli.App, nodes []client.NodeInfo) *nodeMeters {
	m := &nodeMeters{a: a, client: http.Client{Timeout: metricsWait}}
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.State != api.NodeAlive:
		case n.HTTP == "":
			m.hosts = nil
			return m // a sum without this node would mislead
		default:
			m.hosts = append(m.hosts, n.HTTP)
		}
	}
	return m
}

// usage returns the sum over all nodes. After a node could not be read, it returns the last sum.
func (m *nodeMeters) usage() bench.Usage {
	sum := bench.Usage{}
	for _, host := range m.hosts {
		u, err := m.read(host)
		if err != nil {
			m.a.Notef("warning: the usage of the nodes is unknown: metrics of %s: %v", host, err)
			m.hosts = nil
			return m.last
		}
		sum = sum.Plus(u)
	}
	if len(m.hosts) > 0 {
		m.last = sum
	}
	return m.last
}

func (m *nodeMeters) read(host string) (bench.Usage, error) {
	resp, err := m.client.Get("http://" + host + "/metrics")
	if err != nil {
		return bench.Usage{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return bench.Usage{}, fmt.Errorf("%s", resp.Status)
	}
	return parseUsage(resp.Body)
}

// parseUsage parses metrics in Prometheus' text format.
func parseUsage(r io.Reader) (u bench.Usage, err error) {
	var cpu, allocs, bytes, commits, appends, appending float64
	fields := map[string]*float64{
		"process_cpu_seconds_total": &cpu, "go_memstats_mallocs_total": &allocs, "go_memstats_alloc_bytes_total": &bytes,
		"stele_commit_log_commits_total": &commits, "stele_commit_log_batches_total": &appends,
		"stele_commit_log_append_seconds_total": &appending,
	}
	found := 0
	s := bufio.NewScanner(r)
	for s.Scan() {
		name, value, _ := strings.Cut(s.Text(), " ")
		field, wanted := fields[name]
		if !wanted {
			continue
		}
		if *field, err = strconv.ParseFloat(value, 64); err != nil {
			return bench.Usage{}, fmt.Errorf("%s: %w", name, err)
		}
		found++
	}
	if s.Err() == nil && found < len(fields) {
		return bench.Usage{}, fmt.Errorf("found %d of %d metrics", found, len(fields))
	}
	seconds := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
	return bench.Usage{
		CPU: seconds(cpu), Allocs: int64(allocs), AllocBytes: int64(bytes),
		LogCommits: int64(commits), LogAppends: int64(appends), LogAppendTime: seconds(appending),
	}, s.Err()
}
