package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A Workload is one of the paper's.
type Workload string

// The workloads, in the order in which they run: what writes before what reads it.
const (
	RandomWrite     Workload = "random-write"
	RandomRead      Workload = "random-read"
	SequentialWrite Workload = "sequential-write"
	SequentialRead  Workload = "sequential-read"
	Scan            Workload = "scan"
	RandomReadMem   Workload = "random-read-mem"
)

// Workloads lists all of them in the order of the paper's table.
func Workloads() []Workload {
	return []Workload{RandomRead, RandomReadMem, RandomWrite, SequentialRead, SequentialWrite, Scan}
}

// running lists them in the order in which they run.
var running = []Workload{RandomWrite, RandomRead, SequentialWrite, SequentialRead, Scan, RandomReadMem}

// Paper returns what one tablet server of the paper did, in rows a second (§7, the
// table of figure 6).
func (w Workload) Paper() float64 {
	return map[Workload]float64{
		RandomRead: 1212, RandomReadMem: 10811, RandomWrite: 8850, SequentialRead: 4425, SequentialWrite: 8547, Scan: 15385,
	}[w]
}

// ParseWorkloads reads names between commas; none is all.
func ParseWorkloads(text string) (ws []Workload, err error) {
	if text == "" {
		return Workloads(), nil
	}
	for name := range strings.SplitSeq(text, ",") {
		w := Workload(strings.TrimSpace(name))
		if w.Paper() == 0 {
			return nil, fmt.Errorf("no workload %q: there are %s", name, join(Workloads()))
		}
		if !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	return ws, nil
}

func join(ws []Workload) string {
	names := make([]string, len(ws))
	for i, w := range ws {
		names[i] = string(w)
	}
	return strings.Join(names, ", ")
}

// A Config says what to measure. Zero means the default given.
type Config struct {
	Rows       int64      // 1,000,000; of which random-read-mem takes a tenth
	Clients    int        // 64 calls in flight
	Batch      int        // 1 row a call, but in scans
	ValueBytes int        // 1000; at least 8, at most 1 MiB
	Workloads  []Workload // all
	// Rate is the rows a second that all clients together ask for: as many as they
	// can. Scans do not heed it.
	Rate float64
	// Options are those of the family that the values are in, as a family
	// specification has them, such as "block=8KiB,compression=none": none.
	Options string
	// Major makes a major compaction of what is to be read, instead of minor ones.
	Major bool
	// ReadTimeMin is how long workloads that read go on at least: 3 s.
	ReadTimeMin time.Duration
	// Keep leaves the tables there.
	Keep bool
	// Phase is told what is done next: nobody.
	Phase func(text string)
	// Measuring is called when the measured part of a workload begins, and what it
	// returns when it ends: nothing.
	Measuring func(w Workload) (done func())
	// NodeCPU returns the processor time that the node has used so far: unknown.
	NodeCPU func() time.Duration

	// quiet is how long files must not have changed: 2 s.
	quiet time.Duration
}

// Bounds of a Config.
const (
	ClientsMax    = 10_000
	BatchMax      = 10_000
	RowsMax       = 1e12
	ValueBytesMax = 1 << 20
)

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Rows, 1_000_000)
	setDefault(&c.Clients, 64)
	setDefault(&c.Batch, 1)
	setDefault(&c.ValueBytes, 1000)
	setDefault(&c.ReadTimeMin, 3*time.Second)
	setDefault(&c.quiet, 2*time.Second)
	if len(c.Workloads) == 0 {
		c.Workloads = Workloads()
	}
	if c.Phase == nil {
		c.Phase = func(string) {}
	}
	if c.Measuring == nil {
		c.Measuring = func(Workload) func() { return func() {} }
	}
	if c.NodeCPU == nil {
		c.NodeCPU = func() time.Duration { return 0 }
	}
	return c, c.validate()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	for _, f := range []struct {
		name            string
		value, from, to float64
	}{
		{"rows", float64(c.Rows), 10, RowsMax},
		{"clients", float64(c.Clients), 1, ClientsMax},
		{"batch", float64(c.Batch), 1, BatchMax},
		{"bytes of a value", float64(c.ValueBytes), 8, ValueBytesMax},
		{"rate", c.Rate, 0, 1e9},
	} {
		if f.value < f.from || f.value > f.to {
			return fmt.Errorf("%s: %.0f is not between %.0f and %.0f", f.name, f.value, f.from, f.to)
		}
	}
	_, err := c.family(false)
	return err
}

// family returns the specification of the family that holds the values.
func (c Config) family(inMemory bool) (table.FamilySpec, error) {
	text := family + ":versions=1,group=values"
	if inMemory {
		text += ",in-memory"
	}
	if c.Options != "" {
		text += "," + c.Options
	}
	return table.ParseFamilySpec(text)
}

// ClientConfig returns the configuration of a client that sends the batches of c
// whole, over so many connections.
func (c Config) ClientConfig(connections int) client.Config {
	batch, value := max(c.Batch, 1), max(c.ValueBytes, 1000)
	return client.Config{
		Conns:     connections,
		BatchRows: max(batch, fillBatch),
		// A mutation has a few names beside its value.
		BatchBytes: max(1<<20, int64(batch)*int64(value+100)),
	}
}
