package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A Workload is the name of a workload of the paper or of YCSB.
type Workload string

// The paper's workloads in the order in which they run: writes before the reads of their rows.
const (
	RandomWrite     Workload = "random-write"
	RandomRead      Workload = "random-read"
	SequentialWrite Workload = "sequential-write"
	SequentialRead  Workload = "sequential-read"
	Scan            Workload = "scan"
	RandomReadMem   Workload = "random-read-mem"
)

// The YCSB workloads.
const (
	YCSBA Workload = "ycsb-a"
	YCSBB Workload = "ycsb-b"
	YCSBC Workload = "ycsb-c"
	YCSBD Workload = "ycsb-d"
	YCSBE Workload = "ycsb-e"
	YCSBF Workload = "ycsb-f"
)

// PaperWorkloads returns the paper's workloads in the order of its table.
func PaperWorkloads() []Workload {
	return []Workload{RandomRead, RandomReadMem, RandomWrite, SequentialRead, SequentialWrite, Scan}
}

// YCSBWorkloads returns the YCSB workloads.
func YCSBWorkloads() []Workload { return []Workload{YCSBA, YCSBB, YCSBC, YCSBD, YCSBE, YCSBF} }

// Workloads returns all workloads, the paper's first.
func Workloads() []Workload { return append(PaperWorkloads(), YCSBWorkloads()...) }

// running lists the workloads in the order in which they run. As YCSB's authors require, D comes
// after the workloads that must not see its inserts.
var running = []Workload{
	RandomWrite, RandomRead, SequentialWrite, SequentialRead, Scan, RandomReadMem, YCSBA, YCSBB, YCSBC, YCSBF, YCSBD, YCSBE,
}

// The names of groups of workloads.
const (
	paperNames = "paper"
	ycsbNames  = "ycsb"
	allNames   = "all"
)

// Paper returns the rate of the paper's tablet server in rows per second (§7, the table of figure
// 6). It is 0 if the workload is not in the paper.
func (w Workload) Paper() float64 {
	return map[Workload]float64{
		RandomRead: 1212, RandomReadMem: 10811, RandomWrite: 8850, SequentialRead: 4425, SequentialWrite: 8547, Scan: 15385,
	}[w]
}

// ParseWorkloads parses names separated by commas, including the groups "paper", "ycsb" and "all".
// Empty means the paper's.
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
			return nil, fmt.Errorf("unknown workload %q: expected one of %s, %s, %s, %s", name, join(Workloads()), paperNames, ycsbNames, allNames)
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

// A Config configures a measurement. Zero fields mean the default given.
type Config struct {
	Rows       int64      // 1,000,000; random-read-mem uses a tenth
	Clients    int        // 64 concurrent calls
	Batch      int        // 1 row per call; not used by scans and YCSB workloads
	ValueBytes int        // 1000; 8 to 1 MiB; YCSB workloads have ten values of 100
	Workloads  []Workload // the paper's
	Tablets    int        // 1; tables are pre-split into this many
	Operations int64      // of each YCSB workload: the number of rows
	// Rate is the target rate of all clients together in rows or operations per second. Default
	// unlimited. The paper's scan ignores it.
	Rate float64
	// Options are further options of the family of the values, in the form of a family
	// specification, such as "block=8KiB,compression=none". Default none.
	Options string
	// Major runs a major compaction before read workloads instead of minor ones.
	Major bool
	// Warm reads all rows once before read workloads are measured.
	Warm bool
	// ReadTimeMin is the minimum duration of read workloads. Default 3 s.
	ReadTimeMin time.Duration
	// User, named UserName, makes the measured calls and has rights on one family of two. The
	// Bench's client creates the tables and grants the rights. Default: the Bench's client makes
	// all calls.
	User     *client.Client
	UserName string
	// Keep does not drop the tables.
	Keep bool
	// Phase is called at the start of each phase. It may be nil.
	Phase func(text string)
	// Measuring is called when the measured part of a workload starts; the function it returns is
	// called at its end. It may be nil.
	Measuring func(w Workload) (done func())
	// NodeUsage returns the total usage of all nodes so far. Nil means unknown.
	NodeUsage func() Usage

	// quiet is how long files must be unchanged. Default 2 s.
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
	RecordsMax    = 1e8 // of YCSB; each takes 40 bytes of memory
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
		return fmt.Errorf("rows: %d is more than the %.0f that YCSB workloads support", c.Rows, float64(RecordsMax))
	}
	_, err := c.family(false)
	return err
}

// family returns the specification of the family of the values.
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

// ClientConfig returns the configuration of a client that sends the batches of c whole, over the
// given number of connections, and retries when a node fails.
func (c Config) ClientConfig(connections int) client.Config {
	batch, value := max(c.Batch, 1), max(c.ValueBytes, 1000)
	return client.Config{
		Conns: connections,
		// Rows have one value, which may be written twice. YCSB updates may not: see user.update.
		Replay:    client.ReplayAll,
		BatchRows: max(batch, fillBatch),
		// A mutation has a few names in addition to its value.
		BatchBytes: max(1<<20, int64(batch)*int64(value+100)),
	}
}
