package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A Workload is one of the paper's, or of YCSB's.
type Workload string

// The paper's workloads, in the order in which they run: what writes before what reads it.
const (
	RandomWrite     Workload = "random-write"
	RandomRead      Workload = "random-read"
	SequentialWrite Workload = "sequential-write"
	SequentialRead  Workload = "sequential-read"
	Scan            Workload = "scan"
	RandomReadMem   Workload = "random-read-mem"
)

// Those of YCSB.
const (
	YCSBA Workload = "ycsb-a"
	YCSBB Workload = "ycsb-b"
	YCSBC Workload = "ycsb-c"
	YCSBD Workload = "ycsb-d"
	YCSBE Workload = "ycsb-e"
	YCSBF Workload = "ycsb-f"
)

// PaperWorkloads lists the paper's in the order of its table.
func PaperWorkloads() []Workload {
	return []Workload{RandomRead, RandomReadMem, RandomWrite, SequentialRead, SequentialWrite, Scan}
}

// YCSBWorkloads lists YCSB's.
func YCSBWorkloads() []Workload { return []Workload{YCSBA, YCSBB, YCSBC, YCSBD, YCSBE, YCSBF} }

// Workloads lists all of them, the paper's first.
func Workloads() []Workload { return append(PaperWorkloads(), YCSBWorkloads()...) }

// running lists them in the order in which they run. D comes after those that must not
// have its inserts, as YCSB's authors say.
var running = []Workload{
	RandomWrite, RandomRead, SequentialWrite, SequentialRead, Scan, RandomReadMem, YCSBA, YCSBB, YCSBC, YCSBF, YCSBD, YCSBE,
}

// The names of several workloads.
const (
	paperNames = "paper"
	ycsbNames  = "ycsb"
	allNames   = "all"
)

// Paper returns what one tablet server of the paper did, in rows a second (§7, the
// table of figure 6); 0 for what it did not do.
func (w Workload) Paper() float64 {
	return map[Workload]float64{
		RandomRead: 1212, RandomReadMem: 10811, RandomWrite: 8850, SequentialRead: 4425, SequentialWrite: 8547, Scan: 15385,
	}[w]
}

// ParseWorkloads reads names between commas; "paper", "ycsb" and "all" are several.
// None is the paper's.
func ParseWorkloads(text string) (ws []Workload, err error) {
	if text == "" {
		return PaperWorkloads(), nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		named := []Workload{Workload(name)}
		switch {
		case name == paperNames:
			named = PaperWorkloads()
		case name == ycsbNames:
			named = YCSBWorkloads()
		case name == allNames:
			named = Workloads()
		case !slices.Contains(running, named[0]):
			return nil, fmt.Errorf("no workload %q: there are %s, %s, %s, %s", name, join(Workloads()), paperNames, ycsbNames, allNames)
		}
		for _, w := range named {
			if !slices.Contains(ws, w) {
				ws = append(ws, w)
			}
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
	Batch      int        // 1 row a call, but in scans and YCSB's workloads
	ValueBytes int        // 1000; at least 8, at most 1 MiB; YCSB's workloads have ten values of 100
	Workloads  []Workload // the paper's
	Tablets    int        // 1, that a table is cut into beforehand
	Operations int64      // of each of YCSB's workloads: as many as rows
	// Rate is the rows, or operations, a second that all clients together ask for: as
	// many as they can. The paper's scans do not heed it.
	Rate float64
	// Options are those of the family that the values are in, as a family
	// specification has them, such as "block=8KiB,compression=none": none.
	Options string
	// Major makes a major compaction of what is to be read, instead of minor ones.
	Major bool
	// Warm reads all rows once before workloads that read are measured.
	Warm bool
	// ReadTimeMin is how long workloads that read go on at least: 3 s.
	ReadTimeMin time.Duration
	// User, whose name is UserName, makes the calls that are measured, with a right on one family of two; the
	// Bench's client makes the tables, and gives that right: the Bench's client.
	User     *client.Client
	UserName string
	// Keep leaves the tables there.
	Keep bool
	// Phase is told what is done next: nobody.
	Phase func(text string)
	// Measuring is called when the measured part of a workload begins, and what it
	// returns when it ends: nothing.
	Measuring func(w Workload) (done func())
	// NodeUsage returns what all nodes together have used so far: unknown.
	NodeUsage func() Usage

	// quiet is how long files must not have changed: 2 s.
	quiet time.Duration
}

// Bounds of a Config.
const (
	ClientsMax    = 10_000
	BatchMax      = 10_000
	RowsMax       = 1e12
	ValueBytesMax = 1 << 20
	TabletsMax    = 10_000
	OperationsMax = 1e9 // updates are numbered in 32 bits
	RecordsMax    = 1e8 // of YCSB, each of which takes 40 bytes here
)

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Rows, 1_000_000)
	setDefault(&c.Clients, 64)
	setDefault(&c.Batch, 1)
	setDefault(&c.ValueBytes, 1000)
	setDefault(&c.Tablets, 1)
	setDefault(&c.Operations, min(c.Rows, OperationsMax))
	setDefault(&c.ReadTimeMin, 3*time.Second)
	setDefault(&c.quiet, 2*time.Second)
	if len(c.Workloads) == 0 {
		c.Workloads = PaperWorkloads()
	}
	if c.Phase == nil {
		c.Phase = func(string) {}
	}
	if c.Measuring == nil {
		c.Measuring = func(Workload) func() { return func() {} }
	}
	if c.NodeUsage == nil {
		c.NodeUsage = func() Usage { return Usage{} }
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
		{"tablets", float64(c.Tablets), 1, TabletsMax},
		{"operations", float64(c.Operations), 1, OperationsMax},
		{"rate", c.Rate, 0, 1e9},
		{"seconds of reading", c.ReadTimeMin.Seconds(), 0, 86400},
	} {
		if f.value < f.from || f.value > f.to {
			return fmt.Errorf("%s: %.0f is not between %.0f and %.0f", f.name, f.value, f.from, f.to)
		}
	}
	if c.Rows > RecordsMax && slices.ContainsFunc(c.Workloads, func(w Workload) bool { return w.ycsb() != nil }) {
		return fmt.Errorf("rows: %d are more than the %.0f that YCSB's workloads take", c.Rows, float64(RecordsMax))
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
// whole, over so many connections, and goes on when a node dies.
func (c Config) ClientConfig(connections int) client.Config {
	batch, value := max(c.Batch, 1), max(c.ValueBytes, 1000)
	return client.Config{
		Conns: connections,
		// Rows have one value, which may be written twice. Updates of YCSB are another
		// matter, see user.update.
		Replay:    client.ReplayAll,
		BatchRows: max(batch, fillBatch),
		// A mutation has a few names beside its value.
		BatchBytes: max(1<<20, int64(batch)*int64(value+100)),
	}
}
