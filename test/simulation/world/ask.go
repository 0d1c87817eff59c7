package world

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client"
)

// askTimeout bounds one attempt of ask.
const askTimeout = 10 * time.Second

// errLate means that nothing was asked before the end.
var errLate = errors.New("no time is left")

// ask makes a call as an administrator, through one host after the other, until it succeeds or the
// time ends.
func (w *World) ask(end time.Time, do func(ctx context.Context, c *client.Client) error) error {
	err := errLate
	for i := 0; time.Now().Before(end); i++ {
		if err = w.askOnce(i, do); err == nil {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

func (w *World) askOnce(i int, do func(ctx context.Context, c *client.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	c, err := cluster{w}.Open(ctx, i, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}
