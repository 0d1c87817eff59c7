package master

import (
	"context"
	"fmt"
	"time"
)

// changeTimeout bounds one step of the plan. A step that did not complete is planned again from the
// state of the group.
const changeTimeout = 10 * time.Second

// voterManager executes the plan of the voters.
type voterManager struct {
	cfg  Config
	lock Lock
	// failedStep is the last step that failed: its failures are logged once.
	failedStep string
	// attempts are the nodes that failed to join the group.
	attempts attempts
	// announced is when this master was last announced to each node.
	announced map[string]time.Time
}

const (
	// announceTimeout bounds one announcement to all nodes.
	announceTimeout = 2 * time.Second
	// announcePause is the time between two announcements to a node, which may have restarted
	// unnoticed.
	announcePause = 5 * time.Second
)

// announce announces this master to the nodes, which from then on reject the previous one.
func (v *voterManager) announce(ctx context.Context, servers []Server) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	type result struct {
		id  string
		err error
	}
	answers := make(chan result, len(servers))
	calls := 0
	now := time.Now()
	for _, s := range servers {
		if !s.Alive || now.Sub(v.announced[s.ID]) < announcePause {
			continue
		}
		calls++
		go func() { answers <- result{s.ID, v.cfg.Nodes.Announce(ctx, s.ID, v.lock.Sequencer())} }()
	}
	for range calls {
		a := <-answers
		if a.err != nil {
			v.cfg.Logger.Debug("announce master to node", "node", a.id, "err", a.err)
			continue
		}
		if v.announced == nil {
			v.announced = map[string]time.Time{}
		}
		v.announced[a.id] = now
	}
}

// stepsMax bounds the steps without a pause: adding four voters takes eight.
const stepsMax = 8

// reconcile executes steps of the plan as long as there are any.
func (v *voterManager) reconcile(ctx context.Context) {
	for range stepsMax {
		if !v.step(ctx) {
			return
		}
	}
}

// step executes the next step of the plan, and reports whether there may be another one.
func (v *voterManager) step(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	servers, err := v.cfg.Servers(ctx)
	if err != nil {
		v.failed(ctx, "list nodes", err)
		return false
	}
	v.announce(ctx, servers)
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
	v.failedStep = ""
	v.cfg.Logger.Info("lock service voters changed", "change", c.Kind.String(), "node", c.ID, "reason", c.Why,
		"took", time.Since(start).Round(time.Millisecond))
	// A node that was removed, or that steps down, may have to learn of it first.
	return c.Kind == Stage || c.Kind == Promote
}

// failed logs a failed step, once until another step fails.
func (v *voterManager) failed(ctx context.Context, step string, err error) {
	if ctx.Err() == context.Canceled || v.failedStep == step {
		return
	}
	v.failedStep = step
	v.cfg.Logger.Warn("lock service voters not changed, retrying", "step", step, "err", err)
}

func (v *voterManager) do(ctx context.Context, c Change) error {
	g := v.cfg.Group
	switch c.Kind {
	case Stage:
		i, err := g.Invite(ctx, c.ID)
		if err != nil {
			return err
		}
		if err := v.cfg.Nodes.StartVoting(ctx, c.ID, i, v.lock.Sequencer()); err != nil {
			return fmt.Errorf("start voting: %w", err)
		}
		return g.Stage(ctx, c.ID)
	case Promote:
		return g.Promote(ctx, c.ID)
	case Remove:
		// The node deletes its log when it learns of its removal from the group, which alone can
		// prove it.
		return g.Remove(ctx, c.ID)
	case StepDown:
		return g.StepDown(ctx, c.To)
	}
	return nil
}
