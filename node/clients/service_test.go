package clients

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// report keeps a report of a process with that number.
func report(s *Service, user string, process int, r api.ClientReport, now time.Time) error {
	r.ID, r.IntervalMS = fmt.Sprintf("%016x", process), 1000
	return s.keep(user, "127.0.0.1:1", &r, now)
}

// TestBounds (CP1): ten thousand processes of one user, and of a thousand users, take a bounded place, and no other user loses its own to them.
func TestBounds(t *testing.T) {
	s, now := New("n1"), time.Now()
	if err := report(s, "ann", 1, api.ClientReport{Calls: 7}, now); err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for i := range 10_000 {
		err := report(s, "bob", i, api.ClientReport{}, now.Add(time.Duration(i)*time.Millisecond))
		if err != nil && !errors.Is(err, table.ErrLimit) {
			t.Fatal(err)
		}
		if err != nil {
			rejected++
		}
	}
	l := s.List(now)
	if len(l.Processes) != userMax+1 || rejected != 10_000-userMax || l.Rejected != int64(rejected) || l.Processes[0].User != "ann" {
		t.Fatalf("%d processes, %d rejected", len(l.Processes), rejected)
	}
	if err := report(s, "bob", 5, api.ClientReport{Calls: 9}, now); err != nil { // one of those that are kept
		t.Error(err)
	}
	for i := range 10_000 {
		if err := report(s, fmt.Sprintf("user%d", i%1000), i, api.ClientReport{}, now.Add(10*time.Second+time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	users := map[string]int{}
	l = s.List(now.Add(20 * time.Second))
	for _, p := range l.Processes {
		users[p.User]++
	}
	if len(l.Processes) != api.ClientsMax || users["ann"] != 1 || users["bob"] == 0 || len(s.mu.users) != len(users) {
		t.Errorf("%d processes of %d users: ann has %d and bob %d", len(l.Processes), len(users), users["ann"], users["bob"])
	}
}

// TestExpiry (CP2): a process is forgotten a while after its last report, and its place is free.
func TestExpiry(t *testing.T) {
	s, now := New("n1"), time.Now()
	for i := range userMax {
		if err := report(s, "ann", i, api.ClientReport{}, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := report(s, "ann", 3, api.ClientReport{}, now.Add(keepFor)); err != nil {
		t.Fatal(err)
	}
	later := now.Add(keepFor + time.Second)
	if err := report(s, "ann", userMax, api.ClientReport{}, later); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
	if l := s.List(later); len(l.Processes) != 2 {
		t.Errorf("%d processes", len(l.Processes))
	}
	if l := s.List(later.Add(2 * keepFor)); len(l.Processes) != 0 || len(s.mu.users) != 0 {
		t.Errorf("%+v, users %v", l.Processes, s.mu.users)
	}
}

// TestUsersApart (CP3): a user that reports with the id of another user's process changes nothing of it.
func TestUsersApart(t *testing.T) {
	s, now := New("n1"), time.Now()
	for _, user := range []string{"ann", "bob", "ann"} {
		if err := report(s, user, 1, api.ClientReport{Name: "of " + user, Calls: 5, Errors: 1}, now); err != nil {
			t.Fatal(err)
		}
	}
	l := s.List(now)
	if len(l.Processes) != 2 || l.Processes[0].Name != "of ann" || l.Processes[1].Name != "of bob" || s.mu.sums.Calls != 15 || s.mu.sums.Errors != 3 {
		t.Errorf("%+v", l.Processes)
	}
}
