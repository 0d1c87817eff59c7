package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/internal/netlab"
)

// userPauseMin is the minimum time for which users are paused.
const userPauseMin = time.Second

// startUser starts another user.
func (r *wholeRun) startUser(host *netlab.Host, mortal bool) {
	r.t.Helper()
	cfg := r.cfg.user
	cfg.Seed, cfg.Servers, cfg.Credential, cfg.Number = r.seed, r.addresses(), r.keys.file, len(r.users)+1
	cfg.History = filepath.Join(r.dir, fmt.Sprintf("user-%d.jsonl", cfg.Number))
	if mortal {
		cfg.Tables = slices.DeleteFunc(slices.Clone(userTables), func(name string) bool { return name == listTable })
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(cfg.History, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("user-%d.log", cfg.Number)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	u := &userProcess{host: host, history: cfg.History, mortal: mortal}
	cmd := exec.Command(cmp.Or(r.cfg.userProgram, os.Args[0]))
	cmd.Env = append(os.Environ(), roleEnv+"=user", userEnv+"="+string(b), bugEnv+"="+r.cfg.bugs)
	cmd.Stdout, cmd.Stderr = out, out
	if u.stdin, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if u.proc, err = host.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	r.users = append(r.users, u)
}

// killUsers repeatedly kills users at work and starts another in place of each.
func (r *wholeRun) killUsers(f fault) {
	r.t.Helper()
	for end := time.Now().Add(f.length); ; {
		r.killMortals()
		if time.Now().After(end) {
			return
		}
		r.startUsers(f)
		time.Sleep(300*time.Millisecond + f.rest)
	}
}

func (r *wholeRun) killMortals() {
	for _, u := range r.users {
		if u.mortal && !u.killed {
			u.proc.Kill()
			u.killed, u.paused = true, false
			_ = u.stdin.Close() // no longer read
		}
	}
}

// startUsers starts a user for each killed one without a successor.
func (r *wholeRun) startUsers(fault) {
	r.t.Helper()
	for _, u := range slices.Clone(r.users) {
		if u.mortal && u.killed {
			u.mortal = false // already replaced
			r.startUser(u.host, true)
		}
	}
}

// pauseUsers pauses some of the users at work.
func (r *wholeRun) pauseUsers(f fault) {
	r.t.Helper()
	awake := slices.DeleteFunc(slices.Clone(r.users), func(u *userProcess) bool { return u.killed })
	for i, u := range awake {
		if (i+f.pick[0])%2 == 0 {
			if err := u.proc.Pause(); err != nil {
				r.t.Fatal(err)
			}
			u.paused = true
		}
	}
	time.Sleep(userPauseMin)
}

func (r *wholeRun) resumeUsers(fault) {
	r.t.Helper()
	for _, u := range r.users {
		if u.paused {
			if err := u.proc.Resume(); err != nil {
				r.t.Fatal(err)
			}
			u.paused = false
		}
	}
}

// stopUsers ends the users and waits until they have exited.
func (r *wholeRun) stopUsers() {
	r.t.Helper()
	for _, u := range r.users {
		if u.killed {
			continue
		}
		if err := u.stdin.Close(); err != nil {
			r.t.Errorf("user: %v", err)
		}
	}
	for i, u := range r.users {
		if !u.killed {
			r.awaitExit(i+1, u)
		}
		if err := r.h.read(i+1, u.history, u.killed); err != nil {
			r.t.Error(err)
		}
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// awaitExit waits until a user has exited.
func (r *wholeRun) awaitExit(number int, u *userProcess) {
	r.t.Helper()
	select {
	case <-u.proc.Done():
		if err := u.proc.Err(); err != nil {
			output, _ := os.ReadFile(strings.TrimSuffix(u.history, "jsonl") + "log")
			r.t.Errorf("user %d: %v: %s", number, err, tail(string(output), 20))
		}
	case <-time.After(r.cfg.user.Farewell + 30*time.Second):
		r.t.Errorf("user %d does not exit", number)
		_ = u.proc.Signal(15)
	}
}
