package table

import "io"

// A Pacer shares the processor between those who evaluate filters. The Evaluator asks it
// before each slice of work, so that work which takes seconds can wait for its turn, and
// ends with the request that it is for.
type Pacer interface {
	// Pace is called before a slice of work. It may wait. Its error ends the evaluation.
	Pace() error
	// Rest is called when the Evaluator returns after a call of Pace.
	Rest()
}

// Work is counted in steps. A step is about what a regular expression's program does for
// one instruction and one byte: 1 to 5 ns. Cells and bytes that are looked at without a
// program count for less than they take to read.
const (
	// workSlice is the work between two calls of Pace, in steps: up to 2 milliseconds.
	workSlice = 64 << 10
	// freeSteps is the work that an Evaluator does at each use without asking the pacer, once the request was paced: less
	// than it takes to read a row. A scan that tests short values would wait for a turn at each row otherwise.
	freeSteps = 512
	// chunkBytes are matched between two looks at the work.
	chunkBytes = 64
	// bytesPerStep is how many bytes a search without a program passes in one step.
	bytesPerStep = 32
)

// work counts and bounds what filters cost one request.
type work struct {
	used, limit int64
	// next is the work at which spend looks closer.
	next   int64
	pacer  Pacer
	paced  bool // Pace was called, and Rest was not
	turned bool // the request was paced before
	failed error
}

// begin begins a request. The steps are at most limit.
func (w *work) begin(limit int64, p Pacer) {
	*w = work{limit: limit, pacer: p}
	w.advance(limit)
}

func (w *work) advance(limit int64) { w.next = min(w.used+workSlice, limit) }

// beginOwn begins a request for each use of an Evaluator that was not told of any.
func (w *work) beginOwn() {
	if w.limit == 0 {
		*w = work{}
	}
}

// spend counts n steps that are about to be done, and reports whether they may be.
func (w *work) spend(n int64) bool {
	if w.used += n; w.used <= w.next {
		return true
	}
	return w.look()
}

// fits reports whether n steps more stay within the slice at hand.
func (w *work) fits(n int64) bool { return w.used+n <= w.next }

func (w *work) look() bool {
	limit := w.limit
	if limit == 0 {
		limit = defaultLimits.FilterSteps
	}
	switch {
	case w.failed != nil:
	case w.used > limit:
		w.failed = &LimitError{What: "filter steps", Limit: limit, Got: w.used}
	case w.pacer != nil:
		w.paced = true
		w.failed = w.pacer.Pace()
	}
	if w.failed != nil {
		w.next = -1
		return false
	}
	w.advance(limit)
	return true
}

// rest has the pacer know that no work is done for now. A request that was paced once is paced in each further use of the
// Evaluator that takes more than freeSteps: otherwise each of its rows had a slice of work outside any turn.
func (w *work) rest() {
	if w.paced {
		w.paced, w.turned = false, true
		w.pacer.Rest()
	}
	if w.turned && w.failed == nil {
		w.next = min(w.used+freeSteps, w.limit)
	}
}

// turnFor has a request that was paced begin its next slice now unless n steps more fit into what it may do without.
func (w *work) turnFor(n int64) {
	if w.turned && !w.paced && !w.fits(n) {
		w.next = w.used - 1
	}
}

// Begin begins a request: until the next Begin or Reset, all evaluation together takes at
// most that many steps, where 0 is the default of Limits.FilterSteps, and asks p, which may
// be nil, before each slice of it.
func (e *Evaluator) Begin(steps int64, p Pacer) {
	if steps <= 0 {
		steps = defaultLimits.FilterSteps
	}
	e.work.begin(steps, p)
	e.err = nil
}

// Tired reports whether half of the steps of the request are used up: a scan that can go
// on with another request ends its batch.
func (e *Evaluator) Tired() bool { return e.work.used > e.work.limit/2 }

// spend is work.spend, and notes why nothing more may be done.
func (e *Evaluator) spend(n int64) bool {
	if e.work.spend(n) {
		return true
	}
	if e.err == nil {
		e.err = e.work.failed
	}
	return false
}

// match reports whether m matches b. It is false if the work may not go on.
func (e *Evaluator) match(m *matcher, b []byte) bool {
	if m.op != matchRegexp {
		return e.spend(1+int64(len(b)/bytesPerStep)) && m.match(b)
	}
	cost := m.steps * int64(len(b)+1)
	e.work.turnFor(cost) // so that the engine gets all of b at once if that fits into a slice
	if e.spend(0) && e.work.fits(cost) {
		e.work.used += cost
		return m.match(b)
	}
	e.slices = slicedBytes{e: e, b: b, steps: m.steps}
	ok := m.re.MatchReader(&e.slices)
	e.slices = slicedBytes{}
	return ok && e.err == nil
}

// matchString is match for the name of a family, which is short.
func (e *Evaluator) matchString(m *matcher, s string) bool {
	return e.spend(1+m.steps*int64(len(s)+1)) && m.matchString(s)
}

// slicedBytes gives bytes to a matcher, and ends early if the work may not go on: the
// engines themselves cannot be stopped. It implements io.ByteReader.
type slicedBytes struct {
	e     *Evaluator
	b     []byte
	at    int
	steps int64 // for each byte
}

// ReadByte implements io.ByteReader.
func (r *slicedBytes) ReadByte() (byte, error) {
	if r.at == len(r.b) {
		return 0, io.EOF
	}
	if r.at%chunkBytes == 0 && !r.e.spend(r.steps*int64(min(chunkBytes, len(r.b)-r.at))) {
		return 0, io.EOF
	}
	c := r.b[r.at]
	r.at++
	return c, nil
}
