package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// attackEnv has the orders of an attacker, a separate process: its CPU time is not the test's, and
// it yields to the others as a program on another host would.
const attackEnv = "STELE_TEST_ATTACK"

// attackNice is the niceness of an attacker. It uses only the processor time that the node and the
// measured client leave, as if it were on another host.
const attackNice = 19

func TestMain(m *testing.M) {
	if orders := os.Getenv(attackEnv); orders != "" {
		if err := runAttacker(orders); err != nil {
			fmt.Fprintln(os.Stderr, "attacker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// orders are the parameters that the test passes to an attacker.
type orders struct {
	Attack string
	// User is the name of the attacker, and Credential the file with its certificate. An attacker
	// without a certificate uses Credential only to verify the cluster.
	User, Credential string
	Anonymous        bool
	Addrs            []string
	// Share divides the number of connections and requests of the attack.
	Share int
}

// attacker makes requests until its context ends, and counts their outcomes.
type attacker struct {
	orders
	endpoint *pki.Endpoint

	// mu guards outcomes.
	mu       sync.Mutex
	outcomes map[string]int
}

// reportEvery is the interval in which an attacker writes its outcomes.
const reportEvery = 100 * time.Millisecond

// runAttacker attacks until standard input ends. It writes the outcomes until then to standard
// output, again and again and at the end.
func runAttacker(text string) error {
	a := &attacker{outcomes: map[string]int{}}
	if err := json.Unmarshal([]byte(text), &a.orders); err != nil {
		return err
	}
	cred, err := pki.ReadCredential(a.Credential)
	if err != nil {
		return err
	}
	if a.Anonymous {
		cred = pki.AnonymousCredential(cred.Trust())
	}
	a.endpoint = pki.NewEndpoint(cred, pki.Options{})
	i := slices.IndexFunc(attacks, func(k attack) bool { return k.name == a.Attack })
	if i < 0 {
		return fmt.Errorf("no attack %q", a.Attack)
	}
	if err := lowerPriority(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	reported := make(chan error, 1)
	go func() { reported <- a.report(ctx) }()
	attacks[i].do(ctx, a)
	cancel()
	return errors.Join(<-reported, a.writeOutcomes(json.NewEncoder(os.Stdout)))
}

// report writes the outcomes until now, at intervals, until ctx ends.
func (a *attacker) report(ctx context.Context) error {
	out := json.NewEncoder(os.Stdout)
	for pause(ctx, reportEvery); ctx.Err() == nil; pause(ctx, reportEvery) {
		if err := a.writeOutcomes(out); err != nil {
			return err
		}
	}
	return nil
}

func (a *attacker) writeOutcomes(out *json.Encoder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return out.Encode(a.outcomes)
}

// lowerPriority sets the niceness of the process to attackNice. In Linux it is per thread; later
// threads inherit it.
func lowerPriority() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, attackNice); err != nil {
			return err
		}
	}
	return nil
}

// many returns n divided by the attacker's share, at least 1.
func (a *attacker) many(n int) int { return max(1, n/a.Share) }

// count counts the outcome of a request.
func (a *attacker) count(err error) {
	outcome := "ok"
	var answer *rpc.Error
	switch {
	case err == nil:
	case errors.As(err, &answer):
		outcome = answer.Code.String()
	default:
		outcome = "no answer"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes[outcome]++
}

// tls opens a TLS connection to a node, as the attacker's user. It is closed when ctx ends.
func (a *attacker) tls(ctx context.Context, i int) (net.Conn, error) {
	conn, err := a.endpoint.Dial(ctx, "", a.Addrs[i%len(a.Addrs)])
	if err == nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn, err
}

// dial opens a connection for calls. It is closed when ctx ends.
func (a *attacker) dial(ctx context.Context, i int) (*rpc.Conn, error) {
	return rpc.Dial(ctx, a.Addrs[i%len(a.Addrs)], rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		return a.endpoint.Dial(ctx, "", addr)
	}})
}

// encodeParams returns the encoder of a call's parameters.
func encodeParams(params []any) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(len(params))
		for _, p := range params {
			wiretest.Any(e, p)
		}
	}
}

// call makes a call, and counts its outcome. decode may be nil.
func (a *attacker) call(ctx context.Context, c *rpc.Conn, decode func(*wire.Decoder) error, method string, params ...any) error {
	err := c.Call(ctx, method, encodeParams(params), decode)
	if ctx.Err() == nil {
		a.count(err)
	}
	return err
}

// each runs do on n connections at once, each with its own number, and again when it returns, until
// ctx ends. do returns when its connection is lost.
func (a *attacker) each(ctx context.Context, n int, do func(ctx context.Context, c *rpc.Conn, g int)) {
	a.repeat(ctx, n, func(ctx context.Context, g int) error {
		c, err := a.dial(ctx, g)
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		do(ctx, c, g)
		return c.Err()
	})
}

// repeat runs n instances of do, each again when it returns, until ctx ends. An error counts as an
// outcome.
func (a *attacker) repeat(ctx context.Context, n int, do func(ctx context.Context, g int) error) {
	var wait sync.WaitGroup
	for g := range n {
		wait.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, g); err != nil && ctx.Err() == nil {
					a.count(err)
					pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	wait.Wait()
}

// outcomesText lists outcomes by name.
func outcomesText(outcomes map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		all = append(all, fmt.Sprintf("%s %d", name, outcomes[name]))
	}
	return strings.Join(all, ", ")
}
