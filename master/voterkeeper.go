package master

import (
	"context"
	"fmt"
	"time"
)

// changeTimeout bounds one step of the plan. A step that was not finished is looked
// at again: the group itself tells how far it came.
const changeTimeout = 10 * time.Second

// voterKeeper carries out the plan of the voters.
type voterKeeper struct {
	cfg  Config
	lock Lock
	// waits is the last step that failed, which is logged once.
	waits string
	// attempts are the nodes that failed to join the group.
	attempts attempts
	// hailed is when each node was last told of this master.
	hailed map[string]time.Time
}

const (
	// hailTimeout bounds the greeting of all nodes.
	hailTimeout = 2 * time.Second
	// hailPause is the time between two greetings of a node: it may have started anew
	// without anybody noticing.
	hailPause = 5 * time.Second
)

// hail tells the nodes who is master: from then on they refuse the one before.
func (v *voterKeeper) hail(ctx context.Context, servers []Server) {
	ctx, cancel := context.WithTimeout(ctx, hailTimeout)
	defer cancel()
	type greeted struct {
		id  string
		err error
	}
	answers := make(chan greeted, len(servers))
	asked := 0
	now := time.Now()
	for _, s := range servers {
		if !s.Alive || now.Sub(v.hailed[s.ID]) < hailPause {
			continue
		}
		asked++
		go func() { answers <- greeted{s.ID, v.cfg.Nodes.Hail(ctx, s.ID, v.lock.Sequencer())} }()
	}
	for range asked {
		a := <-answers
		if a.err != nil {
			v.cfg.Logger.Debug("tell a node who is master", "node", a.id, "error", a.err)
			continue
		}
		if v.hailed == nil {
			v.hailed = map[string]time.Time{}
		}
		v.hailed[a.id] = now
	}
}

// stepsMax bounds how many steps follow each other without a pause: adding four voters
// takes eight.
const stepsMax = 8

// look does the next steps of the plan, as long as there is one.
func (v *voterKeeper) look(ctx context.Context) {
	for range stepsMax {
		if !v.step(ctx) {
			return
		}
	}
}

// step does the next step of the plan. It tells whether there may be another one.
func (v *voterKeeper) step(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	servers, err := v.cfg.Servers(ctx)
	if err != nil {
		v.failed(ctx, "read the list of nodes", err)
		return false
	}
	v.hail(ctx, servers)
	group := v.cfg.Group.Voters()
	v.attempts.apply(servers, group, v.cfg.Stable, time.Now())
	c := Plan(servers, group, v.cfg.Stable)
	if c.Kind == NoChange || !v.lock.Held() {
		return false
	}
	start := time.Now()
	err = v.do(ctx, c)
	if member, in := find(group, c.ID); err != nil && c.Kind == Stage || c.Kind == Remove && in && member.Staged {
		v.attempts.fail(c.ID, time.Now())
	}
	if err != nil {
		v.failed(ctx, fmt.Sprintf("%v %s", c.Kind, c.ID), err)
		return false
	}
	v.waits = ""
	v.cfg.Logger.Info("changed the voters of the lock service", "change", c.Kind.String(), "node", c.ID, "because", c.Why,
		"took", time.Since(start).Round(time.Millisecond))
	// Who is removed, or hands over, may have to find out first.
	return c.Kind == Stage || c.Kind == Promote
}

// failed tells of a step that did not succeed, once while it stays the same.
func (v *voterKeeper) failed(ctx context.Context, step string, err error) {
	if ctx.Err() == context.Canceled || v.waits == step {
		return
	}
	v.waits = step
	v.cfg.Logger.Warn("cannot change the voters of the lock service; will try again", "step", step, "error", err)
}

func (v *voterKeeper) do(ctx context.Context, c Change) error {
	g := v.cfg.Group
	switch c.Kind {
	case Stage:
		if err := v.cfg.Nodes.StartVoting(ctx, c.ID, v.lock.Sequencer()); err != nil {
			return fmt.Errorf("have it take part: %w", err)
		}
		return g.Stage(ctx, c.ID)
	case Promote:
		return g.Promote(ctx, c.ID)
	case Remove:
		// The node gives up its log when it hears of this from the group itself, which
		// alone can prove it.
		return g.Remove(ctx, c.ID)
	case StepDown:
		return g.StepDown(ctx, c.To)
	}
	return nil
}
