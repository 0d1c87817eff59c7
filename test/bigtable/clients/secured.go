package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// file returns the path of a file of the cluster: ca.pem, and the credentials admin.pem, loader.pem and loader.token.
func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// run runs a command of stele as the administrator.
func (c *cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := command{args: append([]string{c.stele}, args...), env: []string{"STELE_ADDR=" + c.nodes[0].listen, "STELE_CREDENTIAL=" + c.file("admin.pem")}}.cmd(ctx)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd, err, &messages)
	}
	return out, nil
}

// startSecured starts the nodes of a cluster with certificates, and creates the user loader, which is an administrator.
func (c *cluster) startSecured(ctx context.Context) error {
	first := c.nodes[0]
	if _, err := c.run(ctx, "init", "--data-dir", filepath.Join(c.dir, "n1"), "--out", c.file("admin.pem"),
		"--host", "bigtable."+universe, "--host", "bigtableadmin."+universe); err != nil {
		return err
	}
	if err := c.start(first); err != nil {
		return err
	}
	if err := first.await(ctx); err != nil {
		return err
	}
	if _, err := c.run(ctx, "token", "create", "--uses", strconv.Itoa(len(c.nodes)-1), "--out", c.file("join")); err != nil {
		return err
	}
	for _, n := range c.nodes[1:] {
		n.args = append(n.args, "--join", first.listen, "--token-file", c.file("join"))
		if err := c.start(n); err != nil {
			return err
		}
		if err := n.await(ctx); err != nil {
			return err
		}
	}
	return c.createUser(ctx)
}

func (c *cluster) createUser(ctx context.Context) error {
	for _, args := range [][]string{
		{"user", "add", "loader", "--out", c.file("loader.pem")},
		{"user", "add", "loader", "--token", "--out", c.file("loader.token")},
		{"acl", "grant", "loader", "read,write,admin", "--cluster"},
	} {
		if _, err := c.run(ctx, args...); err != nil {
			return err
		}
	}
	authority, err := c.run(ctx, "authority", "show")
	if err != nil {
		return err
	}
	return write(c.file("ca.pem"), authority)
}
