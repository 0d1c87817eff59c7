package main

import (
	"context"
	"fmt"
	"net"
)

func installBeam(ctx context.Context, in place) (*programs, error) {
	p, err := installMaven(ctx, in, "beam", "beam/Work.java", "beam/Token.java", "beam/Changes.java")
	if err != nil {
		return nil, err
	}
	return &programs{quickstart: p.quickstart, work: func(c *cluster) ([]command, error) { return p.beam(ctx, c) }}, nil
}

// beam returns the command of the work program. Beam has no setting for the address of a cluster with certificates: it is that of a domain.
func (p *javaProject) beam(ctx context.Context, c *cluster) ([]command, error) {
	if !c.secure {
		return workFromEnvironment([]string{"java", "-cp", p.path, "Work"})(c)
	}
	trust, err := c.trustStore(ctx)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.endpoint())
	if err != nil {
		return nil, err
	}
	hosts := c.file("hosts")
	if err := write(hosts, fmt.Appendf(nil, "%s bigtable.%s bigtableadmin.%s\n", host, universe, universe)); err != nil {
		return nil, err
	}
	args := append(append([]string{"java", "-Djdk.net.hosts.file=" + hosts}, trust...), "-cp", p.path, "Work")
	return []command{{args: args, env: []string{"GOOGLE_CLOUD_UNIVERSE_DOMAIN=" + universe, "STELE_TOKEN=" + c.file("loader.token")}, how: ", with a token"}}, nil
}
