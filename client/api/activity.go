package api

import (
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// Activity is the result of activity: what a node has done in each of the last intervals. All series
// are equally long and end at the same time, the oldest interval first.
type Activity struct {
	Node       string `json:"node"` // its name
	IntervalMS int64  `json:"interval_ms"`
	EndMS      int64  `json:"end_ms"` // end of the last interval, in ms since 1970
	// Reads, Scans and Writes are requests: reads of rows by key, batches of scans, and changes of
	// rows. Commits are changes that were made durable here.
	Reads   []int64 `json:"reads"`
	Scans   []int64 `json:"scans"`
	Writes  []int64 `json:"writes"`
	Commits []int64 `json:"commits"`
	// ReadMeanUS and the others are times from the arrival of a read by key, or of a change, to its
	// answer, in µs; -1 if there was none. The 99th percentile is rounded up to a power of two.
	ReadMeanUS  []int64 `json:"read_mean_us"`
	ReadP99US   []int64 `json:"read_p99_us"`
	WriteMeanUS []int64 `json:"write_mean_us"`
	WriteP99US  []int64 `json:"write_p99_us"`
	// BytesIn and BytesOut are those of the node's port, Errors those of these reads, scans and writes.
	BytesIn  []int64 `json:"bytes_in"`
	BytesOut []int64 `json:"bytes_out"`
	Errors   []int64 `json:"errors"`
	// LogReplicas are the times of the log replicas on all nodes in the last interval, as this node's commit logs saw them.
	LogReplicas []ReplicaTimes `json:"log_replicas"`
	// QuotaRefusals are the numbers of requests that the node rejected because of rate quotas in the last RefusalMinutes minutes; at most
	// RefusalsMax.
	QuotaRefusals []QuotaRefusals `json:"quota_refusals"`
}

// Bounds of Activity.QuotaRefusals, and of ReplicaTimes.Dropped.
const (
	RefusalMinutes = 10
	RefusalsMax    = 1000
)

// QuotaRefusals is a number of requests, or of rows of requests, that were rejected because of a rate quota.
type QuotaRefusals struct {
	Quota string `json:"quota"` // as in errors, such as: table "web" write_ops
	N     int64  `json:"n"`
}

// QuotaText returns the name of a bound of a quota, as errors and QuotaRefusals have it.
func QuotaText(of, name, kind string) string { return fmt.Sprintf("%s %q %s", of, name, kind) }

func (q *QuotaRefusals) fields() fields { return fields{{"quota", &q.Quota}, {"n", &q.N}} }

// ReplicaTimes are the times that the log replicas of a node took to make appends durable, the way there and back included.
type ReplicaTimes struct {
	Node    string `json:"node"`    // its id
	Appends int64  `json:"appends"` // that it answered in the interval
	// MeanUS and P99US are in µs; -1 if there was no append. The 99th percentile is rounded up to a power of two. It is at least as long as
	// the oldest append waits that is not answered yet.
	MeanUS int64 `json:"mean_us"`
	P99US  int64 `json:"p99_us"`
	// Dropped is how many replicas on the node the logs of this node left for being slow in the last RefusalMinutes minutes.
	Dropped int64 `json:"dropped"`
}

func (r *ReplicaTimes) fields() fields {
	return fields{{"node", &r.Node}, {"appends", &r.Appends}, {"mean_us", &r.MeanUS}, {"p99_us", &r.P99US}, {"dropped", &r.Dropped}}
}

// ActivityIntervalsMax is the number of intervals that a node keeps.
const ActivityIntervalsMax = 240

// Series returns all series, in a fixed order.
func (a *Activity) Series() []*[]int64 {
	return []*[]int64{&a.Reads, &a.Scans, &a.Writes, &a.Commits, &a.ReadMeanUS, &a.ReadP99US, &a.WriteMeanUS, &a.WriteP99US, &a.BytesIn, &a.BytesOut, &a.Errors}
}

// ints is an array of integers.
type ints struct {
	all  *[]int64
	what string
	max  int64
}

func (s *ints) clear() { *s.all = []int64{} }

func (s *ints) append(e *wire.Encoder) {
	e.Array(len(*s.all))
	for _, n := range *s.all {
		e.Int(n)
	}
}

func (s *ints) decode(d *wire.Decoder) error {
	return decodeList(d, s.what, s.max, func() error {
		*s.all = append(*s.all, d.Int())
		return d.Err()
	})
}

func (a *Activity) fields() fields {
	fs := fields{{"node", &a.Node}, {"interval_ms", &a.IntervalMS}, {"end_ms", &a.EndMS}}
	keys := []string{"reads", "scans", "writes", "commits", "read_mean_us", "read_p99_us", "write_mean_us", "write_p99_us", "bytes_in", "bytes_out", "errors"}
	for i, s := range a.Series() {
		fs = append(fs, field{keys[i], &ints{s, keys[i], ActivityIntervalsMax}})
	}
	return append(fs,
		field{"log_replicas", &list[ReplicaTimes]{all: &a.LogReplicas, fields: (*ReplicaTimes).fields, what: "log replicas", max: nodesMax}},
		field{"quota_refusals", &list[QuotaRefusals]{all: &a.QuotaRefusals, fields: (*QuotaRefusals).fields, what: "refusals", max: RefusalsMax}})
}

// Append encodes the result.
func (a *Activity) Append(e *wire.Encoder) { a.fields().append(e) }

// Decode decodes the result.
func (a *Activity) Decode(d *wire.Decoder) error {
	*a = Activity{}
	if err := a.fields().decode(d); err != nil {
		return err
	}
	for _, s := range a.Series() {
		if len(*s) != len(a.Reads) {
			return malformed("series of %d and of %d intervals", len(*s), len(a.Reads))
		}
	}
	if a.IntervalMS <= 0 {
		return malformed("interval of %d ms", a.IntervalMS)
	}
	return nil
}
