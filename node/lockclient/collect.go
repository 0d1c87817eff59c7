package lockclient

import "github.com/steledb/stele/node/metric"

// Collect sends the metrics of the node's session.
func (cl *Client) Collect(m metric.Sender) {
	m.Gauge("lock_session_safe", "1 while this node's session with the lock service is safe.", metric.Bool(cl.Meta.Current().Valid()))
}
