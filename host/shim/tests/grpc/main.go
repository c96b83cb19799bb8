// Command grpc is a server and a client of gRPC with one stream between them: each line that the client reads is a message,
// which the server sends back and the client prints. The stream is open until the client has nothing more to read.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	err := errors.New("usage: grpc serve|talk ADDRESS")
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "talk":
		err = talk(os.Args[2], os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, echo{})
	return server.Serve(listener)
}

// echo has one of the methods that gRPC's own tests call.
type echo struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (echo) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response := &grpc_testing.StreamingOutputCallResponse{Payload: request.GetPayload()}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// talk waits for a server that does not listen yet. It is an error if the stream ends before the lines, or otherwise than
// with the status OK.
func talk(address string, lines io.Reader, said io.Writer) error {
	// No resolver and no proxy, whatever the environment says.
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer connection.Close()
	client := grpc_testing.NewTestServiceClient(connection)
	stream, err := client.FullDuplexCall(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		err := send(lines, stream)
		sent <- errors.Join(err, stream.CloseSend())
	}()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return <-sent
		}
		if err != nil {
			return err
		}
		if _, err := said.Write(response.GetPayload().GetBody()); err != nil {
			return err
		}
	}
}

func send(lines io.Reader, stream grpc_testing.TestService_FullDuplexCallClient) error {
	reader := bufio.NewReader(lines)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		request := &grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: line}}
		if err := stream.Send(request); err != nil {
			return err
		}
	}
}
