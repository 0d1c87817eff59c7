package table

// A Family is a column family: the unit of access control, accounting and garbage collection, and,
// through its locality group, of storage.
type Family struct {
	Name string `json:"name"`
	// ID identifies the family in stored cells in place of its name. Schema.AddFamily assigns it
	// and never reuses it in the table, so that a family dropped and created again does not expose
	// the old cells.
	ID uint32   `json:"-"`
	GC GCPolicy `json:"gc"`
	// Group is the name of a locality group of the schema. Empty means the default group; in a
	// schema it is never empty.
	Group string `json:"group"`
	// Aggregate is how operands make up a cell; AggregateNone if cells are set. It never changes.
	Aggregate Aggregate `json:"aggregate,omitzero"`
	// Source is the ID of the family of the other cluster that this one follows; 0 if there is none.
	Source uint32 `json:"-"`
}

// Equal reports whether both families are equal in all fields.
func (f *Family) Equal(o *Family) bool {
	return f.Name == o.Name && f.ID == o.ID && f.Source == o.Source && f.Group == o.Group && f.Aggregate == o.Aggregate && f.GC.Equal(&o.GC)
}

// Compression is the block compression of a locality group. Values are stored: append only.
type Compression uint8

// The compression algorithms.
const (
	// CompressionDefault is CompressionS2.
	CompressionDefault Compression = 0
	CompressionNone    Compression = 1
	CompressionS2      Compression = 2
	CompressionZstd    Compression = 3
	// CompressionTwoPass is the paper's scheme: a first pass for long common strings of the whole
	// file, then a fast pass.
	CompressionTwoPass Compression = 4
)

var compressionNames = [...]string{"default", "none", "s2", "zstd", "two-pass"}

// String returns the name used in family specifications.
func (c Compression) String() string {
	if int(c) < len(compressionNames) {
		return compressionNames[c]
	}
	return "unknown"
}

// MarshalText returns what String returns.
func (c Compression) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// BloomMode is the granularity of the Bloom filters in a locality group's SSTables. Values are
// stored: append only.
type BloomMode uint8

// The Bloom modes.
const (
	// BloomDefault is BloomRowCol.
	BloomDefault BloomMode = 0
	BloomNone    BloomMode = 1
	// BloomRow filters by row.
	BloomRow BloomMode = 2
	// BloomRowCol filters by row, and by row and column.
	BloomRowCol BloomMode = 3
)

var bloomNames = [...]string{"default", "none", "row", "rowcol"}

// String returns the name used in family specifications.
func (b BloomMode) String() string {
	if int(b) < len(bloomNames) {
		return bloomNames[b]
	}
	return "unknown"
}

// MarshalText returns what String returns.
func (b BloomMode) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// DefaultGroup is the name of the locality group that every table has.
const DefaultGroup = "default"

// Sizes of SSTable blocks, in bytes.
const (
	// DefaultBlockBytes suits scans; 8 KiB suits random reads.
	DefaultBlockBytes = 64 << 10
	MinBlockBytes     = 1 << 10
	MaxBlockBytes     = 1 << 20
)

// A LocalityGroup is a set of families that are stored together, separately from the others (paper
// §6).
type LocalityGroup struct {
	Name string `json:"name"`
	// BlockBytes is the block size before compression: 1 KiB to 1 MiB; 0 means 64 KiB.
	BlockBytes  int         `json:"block_bytes"`
	Compression Compression `json:"compression"`
	Bloom       BloomMode   `json:"bloom"`
	// InMemory groups are loaded into memory and read from there.
	InMemory bool `json:"in_memory"`
}

// Effective returns the group with its zero fields replaced by their defaults.
func (g LocalityGroup) Effective() LocalityGroup {
	if g.BlockBytes == 0 {
		g.BlockBytes = DefaultBlockBytes
	}
	if g.Compression == CompressionDefault {
		g.Compression = CompressionS2
	}
	if g.Bloom == BloomDefault {
		g.Bloom = BloomRowCol
	}
	return g
}

// validate checks the group's fields. table is used in errors.
func (g *LocalityGroup) validate(table string, l *Limits) error {
	if err := checkName("group name", g.Name, l.TableNameBytes); err != nil {
		return err
	}
	bad := func(reason string) error {
		return &SchemaError{Table: table, Reason: "group " + g.Name + ": " + reason}
	}
	if g.BlockBytes != 0 && (g.BlockBytes < MinBlockBytes || g.BlockBytes > MaxBlockBytes) {
		return bad("block size is not from 1 KiB to 1 MiB")
	}
	if int(g.Compression) >= len(compressionNames) {
		return bad("unknown compression")
	}
	if int(g.Bloom) >= len(bloomNames) {
		return bad("unknown bloom mode")
	}
	return nil
}
