package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// victims is a cluster with the users of the attacks, the tables that they attack, and a client
// that takes no part in the attacks.
type victims struct {
	*site
	innocent *innocent
	files    map[string]string // of credentials, by user
	made     int               // tables created by administer
	// baseline is the 99th percentile of the innocent client's reads without an attack, the larger
	// one of two measurements, before and after all attacks. attacked has the percentiles during
	// attacks by name.
	baseline time.Duration
	attacked map[string]time.Duration
}

// attackTable is a table and the grants on it or on one of its families.
type attackTable struct {
	name     string
	families []string
	grants   []client.Grant
}

var attackTables = []attackTable{
	{name: "innocent", families: []string{"f"}, grants: []client.Grant{{Principal: "innocent", Rights: "read"}}},
	{name: "attacked", families: []string{"f", "g"}, grants: []client.Grant{
		{Principal: oneFamily, Family: "f", Rights: "read"},
		{Principal: scanner, Family: "f", Rights: "read"},
		{Principal: disabled, Family: "f", Rights: "read"},
		{Principal: revoked, Family: "f", Rights: "read"},
	}},
	{name: "scrap", families: []string{"f"}, grants: []client.Grant{{Principal: splitter, Rights: "admin"}}},
}

func newVictims(t *testing.T, program string, nodes int) *victims {
	v := &victims{site: secured(t, program, nodes), files: map[string]string{}, attacked: map[string]time.Duration{}}
	ctx := t.Context()
	for _, user := range []string{"innocent", "other-writer", noRights, oneFamily, scanner, disabled, revoked, writer, filer, splitter} {
		v.addUser(user)
	}
	for _, a := range attackTables {
		v.makeTable(a)
	}
	for _, user := range []string{writer, filer, "other-writer"} {
		v.must(v.c.Grants().Add(ctx, client.Grant{Principal: user, Rights: "write"}))
	}
	v.must(v.c.Users().Disable(ctx, disabled))
	v.must(v.c.Users().Revoke(ctx, revoked))
	v.innocent = &innocent{tab: v.clientOf("innocent").Table("innocent")}
	return v
}

func (v *victims) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// addUser creates a user with a certificate.
func (v *victims) addUser(name string) {
	cred, _, err := v.c.Users().Add(v.t.Context(), name, 0)
	v.must(err)
	v.files[name] = filepath.Join(v.dir, name+".pem")
	v.must(pki.WriteCredential(v.files[name], cred))
}

// clientOf returns a client of a user, connected to the last node.
func (v *victims) clientOf(user string) *client.Client {
	cred, err := pki.ReadCredential(v.files[user])
	v.must(err)
	c, err := client.Open(v.t.Context(), v.nodes[len(v.nodes)-1].addr, client.Config{Credential: cred})
	v.must(err)
	v.t.Cleanup(func() { c.Close() })
	return c
}

// makeTable creates a table with small rows and one row of 120 KiB, and grants rights on it.
func (v *victims) makeTable(a attackTable) {
	ctx := v.t.Context()
	var specs []table.FamilySpec
	for _, f := range a.families {
		specs = append(specs, table.FamilySpec{Name: f})
	}
	_, err := v.c.Tables().CreateSplit(ctx, a.name, []string{row("small", innocentRows/2)}, specs...)
	v.must(err)
	small := value(smallCell)
	var ms []*client.RowMutation
	for i := range innocentRows {
		m := client.NewRowMutation(row("small", i))
		for _, f := range a.families {
			m.Set(f+":q", small)
		}
		ms = append(ms, m)
	}
	v.must(v.c.Table(a.name).ApplyAll(ctx, append(ms, client.NewRowMutation("slow").Set("f:q", bytes.Repeat([]byte("x"), slowValue)))))
	for _, g := range a.grants {
		g.Table = a.name
		v.must(v.c.Grants().Add(ctx, g))
	}
}

// measureBaseline measures the innocent client without an attack.
func (v *victims) measureBaseline(while time.Duration) {
	v.innocent.run(v.t.Context(), while)
	v.judgeErrors("no attack")
	v.baseline = max(v.baseline, quantile(v.innocent.mu.reads, 0.99))
	v.report("no attack")
}

func (v *victims) report(what string) {
	n := v.innocent
	v.t.Logf("%-28s reads: p50 %v p99 %v max %v, scans: p99 %v", what, quantile(n.mu.reads, 0.5).Round(time.Microsecond),
		quantile(n.mu.reads, 0.99).Round(time.Microsecond), quantile(n.mu.reads, 1).Round(time.Microsecond), quantile(n.mu.scans, 0.99).Round(time.Microsecond))
}

func (v *victims) judgeErrors(what string) {
	if failed := v.innocent.mu.failed; len(failed) > 0 {
		v.t.Errorf("%s: %d requests of the innocent client failed, such as: %v", what, len(failed), failed[0])
	}
}

// attacking is one process of an attack.
type attacking struct {
	user  string
	cmd   *exec.Cmd
	stop  io.Closer
	stuck bytes.Buffer

	// read is closed at the end of the process's output.
	read chan struct{}
	// mu guards outcomes, which the process wrote last.
	mu       sync.Mutex
	outcomes map[string]int
	err      error // of the output; read after read is closed
}

// follow reads the outcomes that the process writes, until it ends.
func (a *attacking) follow(out io.Reader) {
	defer close(a.read)
	for d := json.NewDecoder(out); ; {
		var latest map[string]int
		if a.err = d.Decode(&latest); a.err != nil {
			if a.err == io.EOF {
				a.err = nil
			}
			return
		}
		a.mu.Lock()
		a.outcomes = latest
		a.mu.Unlock()
	}
}

// answers returns the number of answers that the process received until now.
func (a *attacking) answers() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, of := range a.outcomes {
		if what != "no answer" {
			n += of
		}
	}
	return n
}

// launch starts the processes of an attack.
func (v *victims) launch(k *attack, share int) (all []*attacking) {
	for _, user := range k.users {
		o := orders{Attack: k.name, User: user, Credential: v.files[user], Anonymous: user == anonymous, Share: share}
		if o.Anonymous {
			o.Credential = v.files["innocent"] // for its authority
		}
		for _, p := range v.nodes {
			o.Addrs = append(o.Addrs, p.addr)
		}
		text, err := json.Marshal(o)
		v.must(err)
		a := &attacking{user: user, cmd: exec.Command(os.Args[0]), read: make(chan struct{})}
		a.cmd.Env = append(os.Environ(), attackEnv+"="+string(text))
		a.cmd.Stderr = &a.stuck
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		a.stop, err = a.cmd.StdinPipe()
		v.must(err)
		out, err := a.cmd.StdoutPipe()
		v.must(err)
		v.must(a.cmd.Start())
		go a.follow(out)
		all = append(all, a)
	}
	return all
}

// await waits until the processes of an attack have the least number of answers with which it tests
// something: on a busy machine they have few of the processors.
func (v *victims) await(all []*attacking, least int) {
	sum := func() (n int) {
		for _, a := range all {
			n += a.answers()
		}
		return n
	}
	for end := time.Now().Add(patience); sum() < least && time.Now().Before(end); {
		pause(v.t.Context(), reportEvery)
	}
}

// end stops the processes of an attack and returns the number of answers that they received.
func (v *victims) end(k *attack, all []*attacking) (answers int) {
	for _, a := range all {
		a.stop.Close()
	}
	for _, a := range all {
		kill := time.AfterFunc(patience, func() { _ = a.cmd.Process.Kill() })
		<-a.read
		err := a.cmd.Wait()
		kill.Stop()
		if err = errors.Join(err, a.err); err != nil {
			v.t.Errorf("%s: the attacker %s: %v: %.2000s", k.name, a.user, err, &a.stuck)
		}
		answers += a.answers()
		for what, n := range a.outcomes {
			if what == "ok" && (a.user == noRights || a.user == disabled || a.user == revoked || a.user == anonymous) {
				v.t.Errorf("%s: %d requests of user %s were executed", k.name, n, a.user)
			}
		}
		v.t.Logf("%28s by %s: %s", "", a.user, outcomesText(a.outcomes))
	}
	return answers
}

// under runs an attack on the cluster.
func (v *victims) under(k *attack, while time.Duration, share int) {
	for _, p := range v.nodes {
		p.peak()
	}
	all := v.launch(k, share)
	v.innocent.run(v.t.Context(), while)
	var err error
	if k.meanwhile != nil {
		err = k.meanwhile(v)
	}
	v.await(all, k.enough())
	answers := v.end(k, all)
	if err != nil {
		v.t.Errorf("%s: during the attack: %v", k.name, err)
	}
	v.judge(k, answers)
	if k.after != nil {
		if err := k.after(v); err != nil {
			v.t.Errorf("%s: after the attack: %v", k.name, err)
		}
	}
}

// judge checks the requests of the innocent client, and the peak memory of the nodes since the last
// call.
func (v *victims) judge(k *attack, answers int) {
	v.report(k.name)
	v.judgeErrors(k.name)
	v.attacked[k.name] = quantile(v.innocent.mu.reads, 0.99)
	if least := k.enough(); answers < least {
		v.t.Errorf("%s: attackers received %d answers, want at least %d", k.name, answers, least)
	}
	for _, p := range v.nodes {
		peak := p.peak()
		v.t.Logf("%28s %s: peak %d MiB", "", p.name, peak>>20)
		if peak > memory {
			v.t.Errorf("I13: %s raised %s to %d MiB, limit %d", k.name, p.name, peak>>20, memory>>20)
		}
	}
}

// judgeLatency reports attacks that raised the 99th percentile of another user's reads too much.
func (v *victims) judgeLatency() {
	for _, k := range attacks {
		p99, ran := v.attacked[k.name]
		if !ran {
			continue
		}
		factor := innocentFactor
		if k.floods {
			factor = floodFactor
		}
		times := float64(p99) / float64(v.baseline)
		v.t.Logf("%28s %.1f times the 99th percentile alone, of %d", k.name, times, factor)
		if times >= float64(factor) {
			v.t.Errorf("%s: the 99th percentile of another user's reads is %v, alone %v: %d times or more", k.name, p99, v.baseline, factor)
		}
	}
}

// administer does what an administrator must be able to do at any time.
func (v *victims) administer() error {
	ctx, cancel := context.WithTimeout(v.t.Context(), patience/2)
	defer cancel()
	v.made++
	name := fmt.Sprintf("made-%d", v.made)
	if _, err := v.c.Tables().Create(ctx, name, table.FamilySpec{Name: "f"}); err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	if err := v.c.Grants().Add(ctx, client.Grant{Principal: "innocent", Table: name, Rights: "read"}); err != nil {
		return fmt.Errorf("grant on table %s: %w", name, err)
	}
	return nil
}

// upload stores a blob as a user that takes no part in the attacks.
func (v *victims) upload() error {
	ctx, cancel := context.WithTimeout(v.t.Context(), patience/2)
	defer cancel()
	_, err := v.clientOf("other-writer").Blobs().Put(ctx, "innocent", bytes.NewReader(value(100_000)))
	return err
}

// audited looks for the administrator's actions in the audit logs, and verifies their hash chains.
func (v *victims) audited() error {
	var all strings.Builder
	for _, p := range v.nodes {
		folder := filepath.Join(v.dir, p.name, "security", "audit")
		v.run("audit", "verify", folder)
		b, err := os.ReadFile(filepath.Join(folder, "audit.log"))
		if err != nil {
			return err
		}
		all.Write(b)
	}
	for _, want := range []string{
		`"action":"create_table","on":"table attacked","outcome":"done"`,
		`"action":"disable_user","on":"user ` + disabled + `","outcome":"done"`,
		fmt.Sprintf(`"action":"create_table","on":"table made-%d","outcome":"done"`, v.made),
		fmt.Sprintf(`"on":"read to innocent on table made-%d","outcome":"done"`, v.made),
	} {
		if !strings.Contains(all.String(), want) {
			return fmt.Errorf("the audit logs lack %s", want)
		}
	}
	return nil
}
