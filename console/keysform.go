package console

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// keysForm is which part of the map of keys is shown, as its fields and links have it. Rows are texts with escapes.
type keysForm struct {
	Prefix, Start, End string
	Since              string // one of heatPeriods, before Until
	From, Until        string // minutes in UTC; empty: by Since, and up to now
	Show               string
}

// momentLayout is the form of From and Until.
const momentLayout = "2006-01-02T15:04Z07:00"

func keysFormOf(v url.Values) keysForm {
	f := keysForm{v.Get("prefix"), v.Get("start"), v.Get("end"), v.Get("since"), v.Get("from"), v.Get("until"), v.Get("show")}
	if !slices.Contains(heatPeriods, f.Since) {
		f.Since = heatPeriods[0]
	}
	return f
}

// with returns the address of the page with some fields changed: names and values in turns.
func (f *keysForm) with(changes ...string) string {
	v := url.Values{}
	all := append([]string{"prefix", f.Prefix, "start", f.Start, "end", f.End, "since", f.Since, "from", f.From, "until", f.Until, "show", f.Show}, changes...)
	for at := range slices.Chunk(all, 2) {
		if v.Set(at[0], at[1]); at[1] == "" {
			v.Del(at[0])
		}
	}
	return "?" + v.Encode()
}

// IsZoomed reports whether the map has not all rows, or not all times up to now.
func (f *keysForm) IsZoomed() bool { return f.HasRows() || f.HasTimes() }

// HasRows reports whether the map is of a range of rows.
func (f *keysForm) HasRows() bool { return f.Start != "" || f.End != "" }

// HasTimes reports whether the map is of a time that is given by its bounds.
func (f *keysForm) HasTimes() bool { return f.From != "" || f.Until != "" }

// AllRows returns the address of the page for the same time and all rows.
func (f *keysForm) AllRows() string { return f.with("start", "", "end", "", "prefix", "") }

// ToNow returns the address of the page for the same rows and the time up to now.
func (f *keysForm) ToNow() string { return f.with("from", "", "until", "") }

// Whole returns the address of the page for all rows and the time up to now.
func (f *keysForm) Whole() string {
	return f.with("start", "", "end", "", "prefix", "", "from", "", "until", "")
}

// request returns the request for the part. The error names the field that is wrong.
func (f *keysForm) request(now time.Time) (*client.KeyHeatRequest, error) {
	r := &client.KeyHeatRequest{}
	for _, row := range []struct {
		name, text string
		to         *[]byte
	}{{"Prefix", f.Prefix, &r.Prefix}, {"Rows above", f.Start, &r.Start}, {"Up to", f.End, &r.End}} {
		key, err := text.Unescape(row.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		*row.to = []byte(key)
	}
	if len(r.End) > 0 && string(r.Start) >= string(r.End) {
		return nil, errors.New("Rows above: it must be before the last row")
	}
	r.Since, _ = time.ParseDuration(f.Since) // one of heatPeriods
	if !f.HasTimes() {
		return r, nil
	}
	until, err := momentOf("Until", f.Until, now)
	if err != nil {
		return nil, err
	}
	from, err := momentOf("From", f.From, until.Add(-r.Since))
	switch {
	case err != nil:
		return nil, err
	case !from.Before(until):
		return nil, errors.New("From: it must be before the end of the time")
	case until.Sub(from) > api.KeyHeatSinceMax:
		return nil, errors.New("From: a map has two weeks at most")
	}
	last := until.Add(-time.Millisecond) // of the last interval
	r.UntilMS, r.Since = last.UnixMilli(), last.Sub(from)
	return r, nil
}

// momentOf returns the moment in a field. An empty one has its default.
func momentOf(name, s string, otherwise time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	for _, layout := range []string{momentLayout, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: write a time like %s", name, "2026-11-28T18:50Z")
}
