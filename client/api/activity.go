package api

import (
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
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

// Bounds of report_client and list_clients.
const (
	// ClientIDLen is the length of the id of a client process, in hexadecimal digits, and ClientNameMax the number of bytes of its name.
	ClientIDLen   = 16
	ClientNameMax = 64
	// ClientIntervalMax is the longest interval of a report, and ClientCallsMax the most calls in it.
	ClientIntervalMax = time.Hour
	ClientCallsMax    = 1_000_000_000
	// ClientsMax is the number of client processes that a node keeps.
	ClientsMax = 1024
)

// ClientReport is what a client process counted in an interval, the parameter of report_client:
//
//	[report, options?]
type ClientReport struct {
	ID         string `json:"id"`   // random, of the process
	Name       string `json:"name"` // of the program
	StartedMS  int64  `json:"started_ms"`
	IntervalMS int64  `json:"interval_ms"`
	Calls      int64  `json:"calls"`
	Errors     int64  `json:"errors"`  // calls that failed, after all retries
	Retries    int64  `json:"retries"` // attempts after the first one of a call
	// Hits and Lookups are rows whose tablet's location was cached, and lookups of locations.
	Hits    int64 `json:"hits"`
	Lookups int64 `json:"lookups"`
	// P50US, P99US and MaxUS are the times of reads and writes of rows, retries included; 0 if there were none.
	P50US int64 `json:"p50_us"`
	P99US int64 `json:"p99_us"`
	MaxUS int64 `json:"max_us"`
}

func (r *ClientReport) fields() fields {
	return fields{
		{"id", &r.ID}, {"name", &r.Name}, {"started_ms", &r.StartedMS}, {"interval_ms", &r.IntervalMS}, {"calls", &r.Calls}, {"errors", &r.Errors},
		{"retries", &r.Retries}, {"hits", &r.Hits}, {"lookups", &r.Lookups}, {"p50_us", &r.P50US}, {"p99_us", &r.P99US}, {"max_us", &r.MaxUS},
	}
}

// ReportClientRequest holds the parameters of report_client.
type ReportClientRequest struct {
	Options
	Report ClientReport
}

// Append encodes the parameters.
func (r *ReportClientRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(1 + min(n, 1))
	r.Report.fields().append(e)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d. The error names the value that is out of bounds.
func (r *ReportClientRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodReportClient, n, 1, 2); err != nil {
		return err
	}
	*r = ReportClientRequest{}
	if err := r.Report.fields().decode(d); err != nil {
		return err
	}
	if err := r.Options.decode(d, n > 1, r); err != nil {
		return err
	}
	return r.Report.check()
}

func (r *ReportClientRequest) option([]byte, *wire.Decoder) bool { return false }

// check returns an error unless the report is one that a client can make.
func (r *ClientReport) check() error {
	if id, err := hex.DecodeString(r.ID[:min(len(r.ID), ClientIDLen+1)]); err != nil || len(id) != ClientIDLen/2 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: id %.20q, want %d hexadecimal digits", MethodReportClient, r.ID, ClientIDLen)
	}
	if err := within("bytes of the name of a client process", len(r.Name), ClientNameMax); err != nil {
		return err
	}
	if !utf8.ValidString(r.Name) {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: name %q, want UTF-8", MethodReportClient, r.Name)
	}
	const hour = int64(time.Hour / time.Microsecond)
	for _, v := range []struct {
		name           string
		got, from, max int64
	}{
		{"started_ms", r.StartedMS, 0, 1 << 48}, {"interval_ms", r.IntervalMS, 1, ClientIntervalMax.Milliseconds()}, {"calls", r.Calls, 0, ClientCallsMax},
		{"errors", r.Errors, 0, r.Calls}, {"retries", r.Retries, 0, ClientCallsMax}, {"hits", r.Hits, 0, ClientCallsMax}, {"lookups", r.Lookups, 0, ClientCallsMax},
		{"max_us", r.MaxUS, 0, 24 * hour}, {"p99_us", r.P99US, 0, r.MaxUS}, {"p50_us", r.P50US, 0, r.P99US},
	} {
		if v.got < v.from || v.got > v.max {
			return rpc.Errorf(rpc.CodeBadRequest, "%s: %s is %d, want %d to %d", MethodReportClient, v.name, v.got, v.from, v.max)
		}
	}
	return nil
}

// ClientProcess is a client process with the last report that a node has of it.
type ClientProcess struct {
	ClientReport
	User string `json:"user"` // empty on an open cluster
	From string `json:"from"` // its address
	AtMS int64  `json:"at_ms"`
}

func (p *ClientProcess) fields() fields {
	return append(p.ClientReport.fields(), field{"user", &p.User}, field{"from", &p.From}, field{"at_ms", &p.AtMS})
}

// ClientProcesses is the result of list_clients: the processes that reported to a node in the last minutes.
type ClientProcesses struct {
	Node      string          `json:"node"`
	Processes []ClientProcess `json:"processes"`
	Rejected  int64           `json:"rejected"` // reports that the node has rejected since its start
}

func (l *ClientProcesses) fields() fields {
	return fields{
		{"node", &l.Node}, {"rejected", &l.Rejected},
		{"processes", &list[ClientProcess]{all: &l.Processes, fields: (*ClientProcess).fields, what: "processes", max: ClientsMax}},
	}
}

// Append encodes the result.
func (l *ClientProcesses) Append(e *wire.Encoder) { l.fields().append(e) }

// Decode decodes the result.
func (l *ClientProcesses) Decode(d *wire.Decoder) error {
	*l = ClientProcesses{}
	return l.fields().decode(d)
}
