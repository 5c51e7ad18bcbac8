// A proxy with grpc-go on both sides, which passes messages on as bytes.
//
// SIGHUP replaces the server: a new one takes new connections, and the old one ends its calls
// within five seconds.  Arguments: address to listen on, address of the backend, file with a key
// and a certificate.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

const (
	bytesMax = 64 << 20
	patience = 5 * time.Second
)

type asBytes struct{}

func (asBytes) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (asBytes) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (asBytes) Name() string { return "proto" }

func main() {
	address, backend, file := os.Args[1], os.Args[2], os.Args[3]
	tls, err := credentials.NewServerTLSFromFile(file, file)
	check(err)
	client, err := grpc.NewClient(
		backend,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodec(asBytes{}), grpc.MaxCallRecvMsgSize(bytesMax),
		),
	)
	check(err)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	for number := 1; ; number++ {
		server := grpc.NewServer(
			grpc.Creds(tls),
			grpc.ForceServerCodec(asBytes{}),
			grpc.MaxRecvMsgSize(bytesMax),
			// Each connection is replaced now and then, as services do.
			grpc.KeepaliveParams(keepalive.ServerParameters{
				MaxConnectionAge: 10 * time.Second, MaxConnectionAgeGrace: patience,
			}),
			grpc.UnknownServiceHandler(func(_ any, caller grpc.ServerStream) error {
				return pass(client, caller)
			}),
		)
		go func() {
			listener := listen(address)
			log.Printf("server %d", number)
			check(server.Serve(listener))
		}()
		<-reload
		go func() {
			time.AfterFunc(patience, server.Stop)
			server.GracefulStop()
		}()
	}
}

// listen waits until a server before it has left the address.
func listen(address string) net.Listener {
	for {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return listener
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			check(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func pass(client *grpc.ClientConn, caller grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(caller)
	call, err := client.NewStream(
		metadata.NewOutgoingContext(caller.Context(), passed(caller.Context())),
		&grpc.StreamDesc{ServerStreams: true},
		method,
	)
	if err != nil {
		return err
	}
	var message []byte
	if err := caller.RecvMsg(&message); err != nil {
		return err
	}
	if err := call.SendMsg(&message); err != nil && err != io.EOF {
		return err
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	for {
		err := call.RecvMsg(&message)
		if err == nil {
			err = caller.SendMsg(&message)
		}
		if err == nil {
			continue
		}
		caller.SetTrailer(call.Trailer())
		if err == io.EOF {
			return nil
		}
		return err
	}
}

// passed returns a call's metadata without what belongs to its connection.
func passed(ctx context.Context) metadata.MD {
	found, _ := metadata.FromIncomingContext(ctx)
	kept := metadata.MD{}
	for name, values := range found {
		if !strings.HasPrefix(name, ":") && name != "content-type" && name != "user-agent" {
			kept[name] = values
		}
	}
	return kept
}

func check(err error) {
	if err != nil && err != grpc.ErrServerStopped {
		log.Fatal(err)
	}
}
