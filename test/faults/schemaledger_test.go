package faults

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// target is a family of a table, by their names.
type target struct{ table, family string }

// life is one incarnation of a target: from the creation of the table or family to its drop. Times
// are those of now; zero in the last two means not yet. A creation or drop takes effect between its
// two times.
type life struct {
	id           uint64 // of the table
	born, made   int64  // creation began, returned
	doomed, dead int64  // drop began, returned
	unknown      bool   // the outcome of a change of the target is unknown: nothing is judged
}

// schemaWrite is one row that is written once. Its value follows from the key.
type schemaWrite struct {
	table    string
	families []string
	id       uint64 // table id in the request; 0: by name only
	from, to int64
	fate     fate
}

// schemaLedger records a run's tables and rows, and judges reads and writes (FS1 to FS4).
type schemaLedger struct {
	ledger

	mu     sync.Mutex
	lives  map[target][]*life
	writes map[string]*schemaWrite // by row
	acked  []string
	tables []string // names to read and write, including dropped ones
}

func newSchemaLedger() *schemaLedger {
	return &schemaLedger{lives: map[target][]*life{}, writes: map[string]*schemaWrite{}}
}

// begin records that a row will be written. id is the table id in the request, 0 for none.
func (l *schemaLedger) begin(row, table string, id uint64, families []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[row] = &schemaWrite{table: table, families: families, id: id, from: now(), to: math.MaxInt64, fate: rowUnderWay}
}

// end records the outcome of a write, and judges it by FS2.
func (l *schemaLedger) end(row string, f fate) {
	l.count("writes " + string(f))
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes[row]
	w.fate = f
	if f == rowUnknown {
		return // it may take effect later
	}
	w.to = now()
	if f != rowAcked {
		return
	}
	l.acked = append(l.acked, row)
	for _, family := range w.families {
		if possible, judged := l.possible(w, family); judged && len(possible) == 0 {
			l.violation("row %s was acknowledged although no %s:%s was there from %s to %s (table id in the request: %d); lives: %s",
				row, w.table, family, seconds(w.from), seconds(w.to), w.id, l.history(target{w.table, family}))
		}
	}
}

// possible returns the lives into which a write may have gone; judged is false if that is unknown.
// mu is held.
func (l *schemaLedger) possible(w *schemaWrite, family string) (all []*life, judged bool) {
	for _, x := range l.lives[target{w.table, family}] {
		if x.unknown && w.to >= x.born {
			return nil, false
		}
		if w.to >= x.born && (x.dead == 0 || w.from <= x.dead) && (w.id == 0 || w.id == x.id) {
			all = append(all, x)
		}
	}
	return all, true
}

// history describes the lives of a target. mu is held.
func (l *schemaLedger) history(of target) (text string) {
	all := l.lives[of]
	for _, x := range all[max(0, len(all)-3):] {
		text += fmt.Sprintf(" [table %d, created %s to %s, dropped %s to %s]", x.id, seconds(x.born), seconds(x.made), seconds(x.doomed), seconds(x.dead))
	}
	return text
}

func seconds(at int64) string { return fmt.Sprintf("%.3f s", float64(at)/1e9) }

// bear records that targets are about to be created.
func (l *schemaLedger) bear(table string, families ...string) (fresh []*life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range families {
		x := &life{born: now()}
		if all := l.lives[target{table, f}]; len(all) > 0 {
			x.id = all[len(all)-1].id // for a family that is added again
		}
		l.lives[target{table, f}] = append(l.lives[target{table, f}], x)
		fresh = append(fresh, x)
	}
	return fresh
}

// made records that targets have been created.
func (l *schemaLedger) made(all []*life, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range all {
		x.made, x.id = now(), id
	}
}

// last returns the current lives of targets.
func (l *schemaLedger) last(table string, families ...string) (all []*life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range families {
		if of := l.lives[target{table, f}]; len(of) > 0 && of[len(of)-1].dead == 0 {
			all = append(all, of[len(of)-1])
		}
	}
	return all
}

// doomed reports whether a drop of the newest table of that name has begun, or of one of its families.
func (l *schemaLedger) doomed(table string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range schemaFamilies {
		if of := l.lives[target{table, f}]; len(of) > 0 && of[len(of)-1].doomed != 0 {
			return true
		}
	}
	return false
}

// change changes lives under the ledger's lock.
func (l *schemaLedger) change(all []*life, do func(*life)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range all {
		do(x)
	}
}

// use and retire set which tables are read and written.
func (l *schemaLedger) use(table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables = append(l.tables, table)
}

func (l *schemaLedger) retire(table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables = slices.DeleteFunc(l.tables, func(name string) bool { return name == table })
}

// pick returns one of the tables in use; empty if there is none.
func (l *schemaLedger) pick(n func(int) int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tables) == 0 {
		return ""
	}
	return l.tables[n(len(l.tables))]
}

// idOf returns the id of a current or earlier life of a table; 0 if there is none.
func (l *schemaLedger) idOf(table string, n func(int) int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []uint64
	for _, x := range l.lives[target{table, schemaFamilies[0]}] {
		if x.made != 0 && !slices.Contains(ids, x.id) {
			ids = append(ids, x.id)
		}
	}
	if len(ids) == 0 {
		return 0
	}
	ids = ids[max(0, len(ids)-2):]
	return ids[n(len(ids))]
}

// recent returns an acknowledged row, usually a recent one, and its table.
func (l *schemaLedger) recent(n func(int) int) (row, table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acked) == 0 {
		return "", ""
	}
	at := n(len(l.acked))
	if late := len(l.acked) - 1 - n(200); late >= 0 {
		at = late
	}
	row = l.acked[at]
	return row, l.writes[row].table
}

// read judges a read of a row that found these families. gone is set if the table did not exist.
func (l *schemaLedger) read(row string, from int64, found map[string]string, gone bool) {
	to := now()
	l.count("rows read")
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes[row]
	for _, family := range w.families {
		value, there := found[family]
		l.judge(row, w, family, value, there, from, to)
		possible, judged := l.possible(w, family)
		if gone && judged && len(possible) == 1 && l.stands(possible[0], to) && w.fate == rowAcked && w.to < from {
			l.violation("read of row %s: table %s is not there from %s to %s; lives: %s", row, w.table, seconds(from), seconds(to), l.history(target{w.table, family}))
		}
	}
}

// stands reports whether no drop of a life had begun at a time.
func (l *schemaLedger) stands(x *life, at int64) bool { return x.doomed == 0 || x.doomed > at }

// judge judges the result for a row's family of a read between two times (FS1, FS3). mu is held.
func (l *schemaLedger) judge(row string, w *schemaWrite, family, value string, there bool, from, to int64) {
	possible, judged := l.possible(w, family)
	if !judged {
		return
	}
	where := fmt.Sprintf("row %s of %s:%s, written from %s to %s (%s), read from %s to %s; lives: %s", row, w.table, family,
		seconds(w.from), seconds(w.to), w.fate, seconds(from), seconds(to), l.history(target{w.table, family}))
	alive := slices.ContainsFunc(possible, func(x *life) bool { return x.born <= to && (x.dead == 0 || x.dead >= from) })
	switch {
	case there && value != row:
		l.violation("value %.100q in %s", value, where)
	case there && w.fate == rowRefused && w.to < from:
		l.violation("refused write is there: %s", where)
	case there && !alive:
		l.violation("write into what was dropped is there: %s", where)
	case !there && w.fate == rowAcked && w.to < from && len(possible) == 1 && possible[0].born <= from && l.stands(possible[0], to):
		l.violation("acknowledged write is lost: %s", where)
	}
}

// scanned judges a scan of a whole table, whose schema did not change meanwhile.
func (l *schemaLedger) scanned(table string, from int64, rows map[string]map[string]string) {
	to := now()
	l.count("scans")
	l.mu.Lock()
	defer l.mu.Unlock()
	for row := range rows {
		if w := l.writes[row]; w == nil || w.table != table {
			l.violation("scan of %s from %s: row %s, which was never written there", table, seconds(from), row)
		}
	}
	for row, w := range l.writes {
		if w.table != table {
			continue
		}
		for _, family := range w.families {
			value, there := rows[row][family]
			l.judge(row, w, family, value, there, from, to)
		}
	}
}

// counted returns a counter.
func (l *schemaLedger) counted(what string) int {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	return l.ledger.counts[what]
}
