package node

// handleOwn registers the methods about this node and the location of rows.
func (n *Node) handleOwn() {
	// On the connection's reader: clients use it to check that the node is alive, however busy it is.
	inline := func(method string, _ rpc.Mode, h func(*rpc.Call)) { n.rpc.Handle(method, rpc.Inline, h) }
	n.answerNames(inline, api.MethodPing, 0, n.ping)
	n.answerNames(n.rpc.Handle, api.MethodStatus, 0, n.status)
	n.handle(api.MethodSampleRowKeys, rpc.Spawned, n.sampleRowKeys)
	n.handleNames(api.MethodRoot, 1, n.root)
}

// handleNames registers a method whose parameters are names.
func (n *Node) handleNames(method string, names int, h func(ctx context.Context, r *api.NamesRequest) (answer, error)) {
	n.answerNames(n.handle, method, names, h)
}

// answerNames is handleNames with its own function for registering.
func (n *Node) answerNames(register func(string, rpc.Mode, func(*rpc.Call)), method string, names int,

func (n *Node) ping(context.Context, *api.NamesRequest) (answer, error) {
	p := api.Pong{Server: "stele", Version: Version(), Protocol: api.ProtocolVersion, Node: n.cfg.Name, Cluster: *n.self.clusterID.Load()}
	return p.Append, nil
}
