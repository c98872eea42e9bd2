// A fake cluster of franz-go that speaks the protocol of an older Kafka or of another vendor, and misbehaves on request.
//
// It prints its addresses, separated by commas, and runs until its standard input ends. A line there, whatever it says,
// ends the faults, so that what was written can be read.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const absent = -1

// Whether the faults have ended.
var calm atomic.Bool

// What the vendors' brokers told to ApiVersions, as published in
// github.com/platformatic/kafka/issues/51 and github.com/oliveigah/klife/issues/13.
var vendors = map[string]map[kmsg.Key]int16{
	"redpanda": {
		kmsg.Produce: 7, kmsg.Fetch: 11, kmsg.ListOffsets: 4, kmsg.Metadata: 7, kmsg.OffsetFetch: 7,
		kmsg.FindCoordinator: 3, kmsg.InitProducerID: 3, kmsg.AddPartitionsToTxn: 3, kmsg.AddOffsetsToTxn: 1,
		kmsg.TxnOffsetCommit: 3, kmsg.EndTxn: 3, kmsg.DescribeCluster: absent,
	},
	"event-hubs": {
		kmsg.Produce: 7, kmsg.Fetch: 6, kmsg.ListOffsets: 8, kmsg.Metadata: 5, kmsg.FindCoordinator: 4,
		kmsg.CreateTopics: 2, kmsg.DescribeConfigs: 2, kmsg.InitProducerID: 1, kmsg.AddPartitionsToTxn: absent,
		kmsg.AddOffsetsToTxn: absent, kmsg.EndTxn: absent, kmsg.TxnOffsetCommit: absent, kmsg.DescribeACLs: absent,
		kmsg.DescribeCluster: absent, kmsg.DescribeTransactions: absent, kmsg.ListTransactions: absent,
		kmsg.DescribeProducers: absent,
	},
}

func versions(profile string) *kversion.Versions {
	if release, found := strings.CutPrefix(profile, "kafka-"); found {
		if known := kversion.FromString(release); known != nil {
			return known
		}
	} else if vendor, found := vendors[profile]; found {
		speaks := kversion.V3_1_0()
		for key, highest := range vendor {
			speaks.SetMaxKeyVersion(int16(key), highest)
		}
		return speaks
	}
	fail(fmt.Errorf("unknown profile %q", profile))
	return nil
}

// Cuts each connection in place of a response, after some responses: what the request asked for is done.
type cutting struct {
	net.Listener
	after    int64
	accepted atomic.Int64
}

type cutConn struct {
	net.Conn
	left atomic.Int64
}

func (l *cutting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	cut := &cutConn{Conn: conn}
	cut.left.Store(l.after + l.accepted.Add(1)%l.after)
	return cut, nil
}

func (c *cutConn) Write(data []byte) (int, error) {
	if !calm.Load() && c.left.Add(-1) < 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(data)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	profile := flag.String("profile", "kafka-4.1", "kafka-RELEASE, redpanda or event-hubs")
	refuse := flag.Int64("refuse", 0, "one partition of so many in Produce requests gets NOT_LEADER_OR_FOLLOWER; 0: none")
	cut := flag.Int64("cut", 0, "a connection is cut after this many responses, or up to twice as many; 0: never")
	move := flag.Duration("move", 0, "how often the leaders of all partitions change; 0: never")
	flag.Parse()

	options := []kfake.Opt{
		kfake.NumBrokers(3),
		kfake.MaxVersions(versions(*profile)),
		kfake.DefaultNumPartitions(4),
	}
	if *cut > 0 {
		options = append(options, kfake.ListenFn(func(network, address string) (net.Listener, error) {
			listener, err := net.Listen(network, address)
			return &cutting{Listener: listener, after: *cut}, err
		}))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fail(err)
	}
	defer cluster.Close()
	if *refuse > 0 {
		var seen atomic.Int64
		cluster.Fault(kfake.Fault{
			Keys:  []kmsg.Key{kmsg.Produce},
			Err:   kerr.NotLeaderForPartition,
			Count: -1,
			When:  func(kmsg.Request) bool { return !calm.Load() && seen.Add(1)%*refuse == 0 },
		})
	}
	if *move > 0 {
		go func() {
			for range time.Tick(*move) {
				if !calm.Load() {
					cluster.ShufflePartitionLeaders()
				}
			}
		}()
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
		calm.Store(true)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}
